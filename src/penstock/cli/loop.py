"""The event loop of long-running commands: uvloop's where it is installed, else asyncio's own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
