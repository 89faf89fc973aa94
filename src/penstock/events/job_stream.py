"""The stream of one job: its events, and while it runs its progress and its log."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.feed import CLOCK_MARGIN, Feed, Flush
from penstock.events.selection import EventFilter, block_of, id_block
from penstock.events.stream import EventStream
from penstock.model.clock import within
from penstock.model.errors import NotFound, Unavailable
from penstock.model.ids import shard_of
from penstock.model.job import Job, Progress
from penstock.model.lifecycle import TERMINAL, State
from penstock.store import Shard

LOOK_INTERVAL = timedelta(milliseconds=500)
"""How often the progress and the log of a running job are read."""

LAST_EVENT_WITHIN = timedelta(seconds=3)
"""How soon the stream of an ended job ends, if the event about its end is no longer kept."""

LOG_LINES = 1_000


class ProgressData(Struct, frozen=True):
    """The data of `event: progress`."""

    progress: Progress
    attempt: int


class JobEventStream(EventStream):
    """Everything about one job, from its first event on. Ends after the job's last event."""

    def __init__(
        self, engine: Engine, feed: Feed, reading: asyncio.Semaphore, job: Job, cursor: EventCursor | None
    ) -> None:
        begin = cursor or EventCursor(job.created_at - CLOCK_MARGIN)
        super().__init__(engine, feed, reading, EventFilter(job=job.id), begin)
        self._job = job.id
        self._state = job.state
        self._log = begin.log
        self._progress: Progress | None = None
        self._looked_at = 0.0
        self._is_last = False
        self._joined_at: float | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._give(self._opening())
        while not self.has_ended:
            self.is_taken = True
            chunk = await self._next_chunk()
            if chunk:
                yield self._give(chunk)

    async def _next_chunk(self) -> bytes:
        if not self._is_live:
            return await self._read_past()
        if self._is_last or self._is_overdue():
            self.end()
            return await self._look_if_due(now=True) + self._take_rest()
        if chunk := self._take():
            return chunk
        await within(LOOK_INTERVAL, self._wait())
        return await self._look_if_due()

    def _take_rest(self) -> bytes:
        rest = b""
        while chunk := self._take():
            rest += chunk
        return rest

    def _is_overdue(self) -> bool:
        """Whether the job has ended, and the event about it would have come by now."""
        now = self._engine.clock.monotonic()
        if self._joined_at is None:
            self._joined_at = now
        return self._state in TERMINAL and now - self._joined_at > LAST_EVENT_WITHIN.total_seconds()

    async def _look_if_due(self, *, now: bool = False) -> bytes:
        """Progress and log lines since the last look."""
        at = self._engine.clock.monotonic()
        if not now and (self._state is not State.RUNNING or at - self._looked_at < LOOK_INTERVAL.total_seconds()):
            return b""
        self._looked_at = at
        try:
            return await self._look()
        except (Unavailable, NotFound):
            return b""

    async def _look(self) -> bytes:
        found = await self._engine.jobs.get(self._job)
        blocks = []
        if found.progress is not None and found.progress != self._progress and not found.ended:
            self._progress = found.progress
            blocks.append(block_of(ProgressData(found.progress, found.attempt), "progress"))
        page = await self._engine.jobs.log(self._job, self._log, LOG_LINES)
        if page.lines:
            self._log = page.position
            blocks += [block_of(line, "log") for line in page.lines]
            self.cursor = replace(self.cursor, log=self._log)
            blocks.append(id_block(self.cursor.text))
        return b"".join(blocks)

    def offer(self, flush: Flush) -> None:
        self._is_last = self._is_last or flush.ends
        super().offer(flush)

    def _own_cursor(self, cursor: EventCursor) -> EventCursor:
        """Only its own shard, and the log."""
        shard = shard_of(self._job)
        position = cursor.positions.get(shard)
        positions = {} if position is None else {shard: position}
        return EventCursor(self.cursor.since, positions, self._log)

    async def _read_shard(self, shard: Shard) -> bytes:
        return await super()._read_shard(shard)
