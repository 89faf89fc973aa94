"""The event loop of commands: uvloop's where it is installed, else asyncio's own."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG_OBJECTS = 20_000
"""How many objects more than before make the collector look: a batch of jobs is ten times what Python waits for."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what it returns."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def run_for_long(main: Coroutine[Any, Any, T]) -> T:
    """As `run`, for a process that stays and moves many jobs: what was imported is never looked through for garbage."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    return run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
