"""The loop that every service runs in: step, wait as long as the step said, step again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from penstock.model.clock import Clock, seconds
from penstock.model.errors import Unavailable

logger = logging.getLogger("penstock.scheduler")

RETRY_PAUSE = timedelta(seconds=1)

Step = Callable[[], Awaitable[timedelta]]


class OnStep(Protocol):
    """Called after each step; `ok` is False if it failed."""

    def __call__(self, *, ok: bool) -> None: ...


async def run_service(name: str, step: Step, wake: asyncio.Event | None = None, on_step: OnStep | None = None) -> None:
    """Run `step` for ever; it returns how long to wait for the next one, which `wake` cuts short."""
    wake = wake or asyncio.Event()
    service = Service(name, step, on_step)
    while True:
        wake.clear()
        await _rest(wake, await service.step())


class Service:
    """A step that never raises: errors are logged, an outage once, and the step is tried again."""

    def __init__(self, name: str, step: Step, on_step: OnStep | None = None) -> None:
        self._name = name
        self._step = step
        self._on_step = on_step
        self._out = False

    async def step(self) -> timedelta:
        rest = await self._try()
        if self._on_step is not None:
            self._on_step(ok=rest is not None)
        return RETRY_PAUSE if rest is None else rest

    async def _try(self) -> timedelta | None:
        """How long to wait, or None if the step failed."""
        try:
            rest = await self._step()
        except Unavailable as error:
            logger.log(logging.DEBUG if self._out else logging.WARNING, "%s: %s; trying again", self._name, error)
            self._out = True
            return None
        except Exception:
            logger.exception("%s: a step failed; trying again", self._name)
            return None
        if self._out:
            logger.info("%s: goes on", self._name)
            self._out = False
        return rest


async def _rest(wake: asyncio.Event, delay: timedelta) -> None:
    if delay <= timedelta(0):
        # Yield once even with no delay, so that a busy service does not starve other tasks.
        await asyncio.sleep(0)  # noqa: TID251 - a yield, not a wait
        return
    try:
        async with asyncio.timeout(delay.total_seconds()):
            await wake.wait()
    except TimeoutError:
        return


worker_logger = logging.getLogger("penstock.worker")
AFTER_FAILURE = seconds(1.0)


async def run_forever(name: str, step: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `step` for ever. An unexpected error is logged, and the loop goes on after a pause."""
    while True:
        try:
            await step()
        except Exception:
            worker_logger.exception("the %s loop failed and goes on", name)
            await clock.sleep(AFTER_FAILURE)
