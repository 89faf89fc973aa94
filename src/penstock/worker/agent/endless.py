"""A loop of the agent that nothing but its end can end."""

import logging
from collections.abc import Awaitable, Callable

from penstock.model.timing import Clock, seconds

worker_logger = logging.getLogger("penstock.worker")
AFTER_FAILURE = seconds(1.0)


async def run_forever(name: str, step: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Take one step after the other. A step that fails as nobody foresaw is logged, and the loop goes on."""
    while True:
        try:
            await step()
        except Exception:
            worker_logger.exception("the %s loop failed and goes on", name)
            await clock.sleep(AFTER_FAILURE)
