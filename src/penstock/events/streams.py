"""The open streams of a process: how many there may be, and what happens to them every second."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from penstock.engine import Engine
from penstock.engine.history import require_events
from penstock.engine.signals import JOURNAL_WANTED_EVERY
from penstock.events.cursor import EventCursor
from penstock.events.feed import Feed
from penstock.events.job_stream import JobEventStream
from penstock.events.selection import StreamFilter
from penstock.events.stream import EventStream
from penstock.events.tailer import Tailers, begin_at_head
from penstock.loop import run_service
from penstock.model.errors import PenstockError, ServerBusy, ShuttingDown, Unavailable
from penstock.model.ids import JobId, shard_of

logger = logging.getLogger("penstock.api")

TICK = timedelta(seconds=1)
READMIT_EVERY = timedelta(seconds=10)
"""How soon a stream ends whose key has expired; one whose key was revoked ends earlier, by a signal."""

CLOSE_AFTER = timedelta(seconds=30)
"""How long a client may take nothing."""

READS_AT_ONCE = 4
"""How many streams of a process read the past at once."""

OpenStream = TypeVar("OpenStream", bound=EventStream)
Admit = Callable[[], Awaitable[object]]


class Streams:
    """All streams of one process, over one feed. Tailers run while there is a stream."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._feed = Feed(engine)
        self._reading = asyncio.Semaphore(READS_AT_ONCE)
        self._open: set[EventStream] = set()
        self._starting = asyncio.Lock()
        self._tailers: Tailers | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._wanted_at = self._readmitted_at = 0.0
        engine.departure.subscribe(lambda _: self.end_all())
        engine.signals.notices.subscribe(lambda _: self._readmit_soon())

    async def open(self, where: StreamFilter, cursor: EventCursor | None, admit: Admit) -> EventStream:
        """A stream from a cursor on, or from now on. ServerBusy if there are too many."""
        return await self._add(lambda: self._make(where, cursor), admit)

    async def _make(self, where: StreamFilter, cursor: EventCursor | None) -> EventStream:
        return EventStream(self._engine, self._feed, self._reading, where, cursor)

    async def open_job(self, job: JobId, cursor: EventCursor | None, admit: Admit) -> JobEventStream:
        """The stream of one job, from its first event or a cursor on. NotFound if there is no such job."""
        return await self._add(lambda: self._make_job(job, cursor), admit)

    async def _make_job(self, job: JobId, cursor: EventCursor | None) -> JobEventStream:
        known = self._feed.position(shard_of(job))
        found = await self._engine.jobs.get(job)
        return JobEventStream(self._engine, self._feed, self._reading, found, cursor, known)

    async def _add(self, make: Callable[[], Awaitable[OpenStream]], admit: Admit) -> OpenStream:
        self._check()
        # Counted before anything is awaited.
        self._engine.meters.streams += 1
        try:
            async with self._starting:
                await self._start()
            stream = await make()
            stream.readmit = admit
            self._open.add(stream)
        except BaseException:
            await self._count_closed()
            raise
        return stream

    def _check(self) -> None:
        require_events(self._engine.settings.events)
        if self._engine.leaving:
            raise ShuttingDown("this server is stopping: connect to another")
        most = self._engine.settings.limits.streams
        if self._engine.meters.streams >= most:
            raise ServerBusy(f"this server has {most} streams open and takes no more (limits.streams)")

    async def close(self, stream: EventStream) -> None:
        """Forget a stream that has ended, or whose client is gone."""
        stream.close()
        self._open.discard(stream)
        await self._count_closed()

    async def _count_closed(self) -> None:
        self._engine.meters.streams -= 1
        if not self._engine.meters.streams:
            async with self._starting:
                if not self._engine.meters.streams:
                    await self._stop()

    def end_all(self) -> None:
        """Let all streams end: the server leaves, and their clients connect to another."""
        for stream in self._open:
            stream.end()

    # -- while there are streams

    async def _start(self) -> None:
        if self._tailers is not None:
            return
        self._feed.restart()
        tailers = self._tailers = Tailers(self._engine, self._feed)
        await begin_at_head(self._engine, self._feed)
        tailers.supervise()
        self._keeper = asyncio.ensure_future(run_service("streams", self.step))

    async def _stop(self) -> None:
        keeper, tailers, self._keeper, self._tailers = self._keeper, self._tailers, None, None
        if keeper is not None:
            keeper.cancel()
        if tailers is not None:
            await tailers.close()

    async def step(self) -> timedelta:
        """What is due now: heartbeats, streams that must end, tailers of new shards."""
        now = self._engine.clock.monotonic()
        if self._tailers is not None:
            self._tailers.supervise()
        if now - self._wanted_at >= JOURNAL_WANTED_EVERY.total_seconds():
            self._wanted_at = now
            self._engine.signals.journal.wanted.send(None)
        for stream in list(self._open):
            stream.beat()
            if stream.stuck_for() >= CLOSE_AFTER:
                stream.abort()
        if now - self._readmitted_at >= READMIT_EVERY.total_seconds():
            self._readmitted_at = now
            await self._readmit()
        return TICK

    def _readmit_soon(self) -> None:
        """A key may have been revoked."""
        self._readmitted_at = -READMIT_EVERY.total_seconds()

    async def _readmit(self) -> None:
        """End the streams whose key is no longer good. While keys cannot be read, those last read count."""
        for stream in list(self._open):
            try:
                if stream.readmit is not None:
                    await stream.readmit()
            except Unavailable:
                continue
            except PenstockError as error:
                logger.info("a stream of events ends: %s", error.message)
                stream.end()
