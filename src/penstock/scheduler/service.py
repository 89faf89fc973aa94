"""The loop that every service runs in: step, wait as long as the step said, step again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.model.errors import Unavailable

logger = logging.getLogger("penstock.scheduler")

AFTER_TROUBLE = timedelta(seconds=1)

Step = Callable[[], Awaitable[timedelta]]


async def run_service(name: str, step: Step, wake: asyncio.Event | None = None) -> None:
    """Run `step` for ever; it returns how long to wait for the next one, which `wake` cuts short."""
    wake = wake or asyncio.Event()
    while True:
        wake.clear()
        delay = await _step(name, step)
        await _rest(wake, delay)


async def _step(name: str, step: Step) -> timedelta:
    try:
        return await step()
    except Unavailable as trouble:
        logger.warning("%s: %s; trying again", name, trouble)
    except Exception:
        logger.exception("%s: a step failed; trying again", name)
    return AFTER_TROUBLE


async def _rest(wake: asyncio.Event, delay: timedelta) -> None:
    if delay <= timedelta(0):
        # Yield once even with no delay, so that a busy service starves nobody.
        await asyncio.sleep(0)  # noqa: TID251 - a yield, not a wait
        return
    try:
        async with asyncio.timeout(delay.total_seconds()):
            await wake.wait()
    except TimeoutError:
        return
