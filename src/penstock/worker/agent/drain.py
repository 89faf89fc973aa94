"""The drain of a worker: running jobs finish or are released before it ends."""

import asyncio
import logging
import math
from collections.abc import Coroutine
from datetime import timedelta

from penstock.model.clock import seconds, within
from penstock.worker.agent.attempt import LeaseTerms, StopReason
from penstock.worker.agent.attempts import Attempts
from penstock.worker.agent.settler import Settler

logger = logging.getLogger("penstock.worker")
KILL_SECONDS = 5.0
"""How long a killed process may take to end."""


class Drain:
    """`begin` and `hurry` may be called at any time, and repeated: what leaves less time counts."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._hurried = asyncio.Event()
        self._shortened = asyncio.Event()
        self._ends_at = math.inf

    @property
    def on(self) -> bool:
        return self._begun.is_set()

    def begin(self, patience: timedelta | None) -> None:
        """Drain within `patience`, or as long as it takes; shortens a drain that would take longer."""
        ends_at = math.inf if patience is None else _now() + patience.total_seconds()
        if ends_at < self._ends_at:
            self._ends_at = ends_at
            self._shortened.set()
        self._begun.set()

    def hurry(self) -> None:
        """Release running jobs at once."""
        self._hurried.set()
        self._begun.set()

    async def wait_for_begin(self) -> None:
        await self._begun.wait()

    async def carry_out(self, attempts: Attempts, settler: Settler, terms: LeaseTerms) -> None:
        """Let running jobs finish within the patience, release the rest, and wait until all outcomes are told."""
        logger.info("draining: %d jobs are running", len(attempts.running()))
        await self._wait_for_jobs(attempts)
        self._yield_rest(attempts)
        await self._wait_unless(self._hurried, terms.lease, attempts.idle())
        self._yield_rest(attempts)
        await within(seconds(KILL_SECONDS), attempts.idle())
        await within(seconds(terms.lease), settler.quiet())

    def _yield_rest(self, attempts: Attempts) -> None:
        for attempt in attempts.running():
            attempts.stop(attempt, StopReason.YIELDING, 0.0 if self._hurried.is_set() else None)

    async def _wait_for_jobs(self, attempts: Attempts) -> None:
        """Return once no job runs, the patience is over, which may be shortened meanwhile, or the drain is hurried."""
        while attempts.running() and not self._hurried.is_set() and (left := self._ends_at - _now()) > 0:
            self._shortened.clear()
            span = None if left == math.inf else left
            await self._wait_unless(self._shortened, span, self._wait_unless(self._hurried, None, attempts.idle()))

    async def _wait_unless(
        self, event: asyncio.Event, span: float | None, awaited: Coroutine[None, None, None]
    ) -> None:
        """Wait until the event or the awaited comes, at most `span` seconds."""
        waits = [asyncio.ensure_future(awaited), asyncio.ensure_future(event.wait())]
        try:
            await asyncio.wait(waits, timeout=span, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()
