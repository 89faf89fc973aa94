"""The drain of a worker: running jobs finish or are released before it ends."""

import asyncio
import logging
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
    """`begin` may be called at any time; a second call releases running jobs at once."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def on(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        if self._begun.is_set():
            self._hurried.set()
        self._begun.set()

    async def wait_for_begin(self) -> None:
        await self._begun.wait()

    async def carry_out(self, attempts: Attempts, settler: Settler, terms: LeaseTerms, patience: timedelta) -> None:
        """Let running jobs finish within `patience`, release the rest, and wait until all outcomes are told."""
        running = len(attempts.running())
        logger.info("draining: %d jobs are running", running)
        await self._wait_unless_hurried(patience, attempts.idle())
        self._yield_rest(attempts)
        await self._wait_unless_hurried(seconds(terms.lease), attempts.idle())
        self._yield_rest(attempts)
        await within(seconds(KILL_SECONDS), attempts.idle())
        await within(seconds(terms.lease), settler.quiet())

    def _yield_rest(self, attempts: Attempts) -> None:
        for attempt in attempts.running():
            attempts.stop(attempt, StopReason.YIELDING, 0.0 if self._hurried.is_set() else None)

    async def _wait_unless_hurried(self, span: timedelta, awaited: Coroutine[None, None, None]) -> None:
        waits = [asyncio.ensure_future(awaited), asyncio.ensure_future(self._hurried.wait())]
        try:
            await asyncio.wait(waits, timeout=span.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
