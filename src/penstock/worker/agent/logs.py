"""In the agent: what jobs wrote, on its way to the engine."""

import asyncio
import logging
from collections.abc import Iterable

from penstock.engine.reach import Reach
from penstock.model.errors import Refused, Unavailable
from penstock.model.job import LogLine
from penstock.model.timing import Clock, seconds
from penstock.model.wire import LogEntry
from penstock.worker.agent.attempt import Attempt
from penstock.worker.agent.outage import Backoff

LOGGER = logging.getLogger("penstock.worker")
EVERY = seconds(0.5)
CALL_LINES = 5_000

Taken = tuple[Attempt, tuple[LogLine, ...]]


class Logs:
    """Sends lines in batches, each job's in order. Lines the engine cannot take yet are kept."""

    def __init__(self, reach: Reach, clock: Clock, backoff: Backoff) -> None:
        self._reach = reach
        self._clock = clock
        self._backoff = backoff
        self._waiting: dict[Attempt, None] = {}
        self._news = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def wrote(self, attempt: Attempt, lines: Iterable[LogLine]) -> None:
        attempt.lines = (*attempt.lines, *lines)
        self._waiting[attempt] = None
        self._news.set()

    async def step(self) -> None:
        """Send what was written, every half second at most."""
        await self._news.wait()
        self._news.clear()
        try:
            await self.flush(tuple(self._waiting))
        except Unavailable as error:
            self._news.set()
            await self._backoff.wait(error)
        else:
            self._backoff.over()
            await self._clock.sleep(EVERY)

    async def flush(self, attempts: Iterable[Attempt]) -> None:
        """Send all that these attempts have written; afterwards it is kept. Unavailable: it still waits here.

        Also waits for what another flush has taken and not yet sent: a settle must not overtake it.
        """
        async with self._one_at_a_time:
            while taken := self._take(attempts):
                await self._send(taken)

    def forget(self, attempt: Attempt) -> None:
        """Drop what waits of an attempt that is no longer ours."""
        self._waiting.pop(attempt, None)

    def _take(self, attempts: Iterable[Attempt]) -> list[Taken]:
        taken: list[Taken] = []
        lines = 0
        for attempt in attempts if self._waiting else ():
            if attempt in self._waiting and lines < CALL_LINES:
                del self._waiting[attempt]
                taken.append((attempt, attempt.lines))
                lines += len(attempt.lines)
                attempt.lines = ()
        return taken

    async def _send(self, taken: list[Taken]) -> None:
        entries = [LogEntry(attempt.claim.job, attempt.claim.fence, lines) for attempt, lines in taken]
        try:
            await self._reach.log(entries)
        except Refused as error:
            LOGGER.warning("log lines of %d jobs were refused: %s", len(entries), error)
        except BaseException:
            for attempt, lines in taken:
                attempt.lines = (*lines, *attempt.lines)
                self._waiting[attempt] = None
            raise
