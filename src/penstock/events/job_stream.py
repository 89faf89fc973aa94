"""The stream of one job: its events, and while it runs its progress and its log."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from msgspec.structs import replace

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.feed import CLOCK_MARGIN, Feed, Flush
from penstock.events.selection import EventBatch, StreamFilter, block_of, id_block
from penstock.events.stream import EventStream, Queued
from penstock.model.clock import within
from penstock.model.errors import NotFound, Unavailable
from penstock.model.ids import shard_of
from penstock.model.job import Job, Progress
from penstock.model.journal import Position
from penstock.model.lifecycle import TERMINAL, State
from penstock.model.wire.events import ProgressItem, StreamEnd
from penstock.store import Shard

LOOK_INTERVAL = timedelta(milliseconds=500)
"""How often the progress and the log of a running job are read."""

LAST_EVENT_WITHIN = timedelta(seconds=2)
"""How soon the stream of an ended job ends, if the event about its end is no longer kept."""

LOG_LINES = 1_000
BLOCK_END = b"\n\n"


class JobEventStream(EventStream):
    """Everything about one job, from its first event on. Ends after the job's last event.

    `known` is a position of the job's shard that was taken before the job was read: up to there, the journal has no
    event of the job that is newer than the job's version.
    """

    past_events = 5_000

    def __init__(
        self,
        engine: Engine,
        feed: Feed,
        reading: asyncio.Semaphore,
        job: Job,
        cursor: EventCursor | None,
        known: Position | None,
    ) -> None:
        begin = cursor or EventCursor(job.created_at - CLOCK_MARGIN)
        super().__init__(engine, feed, reading, StreamFilter(job=job.id), begin)
        self._job = job
        self._known = known
        self._has_read_all = False
        self._state = job.state
        self._progress: Progress | None = None
        self._looked_at = 0.0
        self._is_last = False
        self._joined_at: float | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._give(self._opening())
        while not self.has_ended:
            self.is_taken = True
            if chunk := await self._next_chunk():
                yield self._give(chunk)

    async def _next_chunk(self) -> bytes:
        if self._is_last or self._is_overdue():
            self.end()
            rest = await self._look_if_due(always=True) + self._take_rest()
            return rest + block_of(StreamEnd(self._state), "end")
        if not self.is_live:
            return await self._read_past()
        if chunk := self._take():
            return chunk
        await within(LOOK_INTERVAL, self._wait())
        return await self._look_if_due()

    # -- events

    def offer(self, flush: Flush) -> None:
        own = self._own_cursor(flush.cursor)
        self._note_state(flush.state)
        self._add(Queued(flush.body + id_block(own.text), own))

    def _note_past(self, batch: EventBatch) -> None:
        self._note_state(batch.last_state(self._job.id))
        newest = max((item.version for _, item in batch.select(self.where)), default=0)
        self._has_read_all = self._has_read_all or newest >= self._job.version

    def _note_state(self, state: State | None) -> None:
        self._state = state or self._state
        self._is_last = self._is_last or state in TERMINAL

    async def _read_shard(self, shard: Shard) -> bytes:
        """Also skips the rest of the past once all events of the job are read. The last one follows the log."""
        body = await super()._read_shard(shard)
        if self._has_read_all and self._known is not None and self._known > self.cursor.positions[shard.shard]:
            self.cursor = self.cursor.at(shard.shard, self._known)
        if not self._is_last:
            return body
        before_last = body.rfind(BLOCK_END, 0, -len(BLOCK_END)) + len(BLOCK_END) if body.count(BLOCK_END) > 1 else 0
        return body[:before_last] + await self._look_if_due(always=True) + body[before_last:]

    def _take_rest(self) -> bytes:
        rest = b""
        while chunk := self._take():
            rest += chunk
        return rest

    def _is_overdue(self) -> bool:
        """Whether the job has ended, and the event about it would have come by now."""
        now = self._engine.clock.monotonic()
        if self._joined_at is None and self.is_live:
            self._joined_at = now
        late = self._joined_at is not None and now - self._joined_at > LAST_EVENT_WITHIN.total_seconds()
        return late and self._job.ended

    def _own_cursor(self, cursor: EventCursor) -> EventCursor:
        """The position in its own shard alone, and in the log."""
        shard = shard_of(self._job.id)
        position = self.pending.get(shard) or cursor.positions.get(shard)
        return EventCursor(self.cursor.since, {} if position is None else {shard: position}, self.cursor.log)

    # -- progress and log

    async def _look_if_due(self, *, always: bool = False) -> bytes:
        """Progress and log lines since the last look."""
        at = self._engine.clock.monotonic()
        is_due = self._state is State.RUNNING and at - self._looked_at >= LOOK_INTERVAL.total_seconds()
        if not (is_due or always):
            return b""
        self._looked_at = at
        try:
            return await self._look()
        except (Unavailable, NotFound):
            return b""

    async def _look(self) -> bytes:
        found = await self._engine.jobs.get(self._job.id)
        blocks = []
        if found.progress is not None and found.progress != self._progress and not found.ended:
            self._progress = found.progress
            blocks.append(block_of(ProgressItem(found.progress, found.attempt), "progress"))
        page = await self._engine.jobs.log(self._job.id, self.cursor.log, LOG_LINES)
        if page.lines:
            self.cursor = replace(self.cursor, log=page.position)
            blocks += [block_of(line, "log") for line in page.lines]
            # An id here must not be beyond the job's last event, which follows its log.
            blocks += [] if self._is_last else [id_block(self.cursor.text)]
        return b"".join(blocks)
