"""The live digest: one reading a second of the whole system, shared by all pages of a process that look at it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.loop import run_service
from penstock.model.clock import EARLIEST
from penstock.model.errors import EventsNotKept, PenstockError, ServerBusy, ShuttingDown, Unavailable
from penstock.model.lifecycle import State
from penstock.model.wire.fleets import FleetItem
from penstock.model.wire.history import HistoryStep
from penstock.model.wire.jobs import QueueItem
from penstock.model.wire.live import LiveDigest, LiveFleet

logger = logging.getLogger("penstock.api")

READ_EVERY = timedelta(seconds=1)
REPEAT_EVERY = timedelta(seconds=5)
"""How often an unchanged digest is sent again, so that a page knows that it is not stale."""

HISTORY_EVERY = timedelta(seconds=5)
HISTORY_SPAN = timedelta(minutes=2)
MOST_QUEUES = 100
RETRY = b"retry: 2000\n\n"
REFUSED = b"event: refused\ndata: {}\n\n"
"""The last of a stream whose key is no longer good: connecting again would not help."""

Admit = Callable[[], Awaitable[object]]


class LiveStream:
    """One page that looks: it is given the newest digest, never those that it was too slow for."""

    def __init__(self, readmit: Admit) -> None:
        self.readmit = readmit
        self.has_ended = False
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._newest: bytes | None = None
        self._farewell = b""
        self._wake = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Everything, until the stream ends."""
        yield RETRY
        while not self.has_ended:
            newest, self._newest = self._newest, None
            if newest is not None:
                yield newest
            else:
                self._wake.clear()
                await self._wake.wait()
        if self._farewell:
            yield self._farewell

    def offer(self, chunk: bytes) -> None:
        self._newest = chunk
        self._wake.set()

    def end(self, farewell: bytes = b"") -> None:
        self.has_ended = True
        self._farewell = farewell
        self._wake.set()


class LiveFeed:
    """Reads the digest while there is a page that looks, and gives it to all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: set[LiveStream] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._newest: LiveDigest | None = None
        self._read_at = self._sent_at = self._history_at = float("-inf")
        self._recent: tuple[HistoryStep, ...] | None = None
        self._sent: LiveDigest | None = None
        engine.departure.subscribe(lambda _: self.end_all())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is read: no page looks."""
        return self._keeper is None

    def open(self, readmit: Admit) -> LiveStream:
        """A stream of digests. ServerBusy if there are too many, ShuttingDown if the server is about to stop."""
        if self._engine.leaving:
            raise ShuttingDown("this server is stopping: connect to another")
        most = self._engine.settings.limits.streams
        if len(self._open) >= most:
            raise ServerBusy(f"this server has {most} pages open and takes no more (limits.streams)")
        stream = LiveStream(readmit)
        self._open.add(stream)
        # Whoever comes later is told at once, too.
        self._sent = None
        if self._keeper is None:
            self._keeper = asyncio.ensure_future(run_service("live", self.step))
        return stream

    async def close(self, stream: LiveStream) -> None:
        """Forget a stream; with the last one the reading ends."""
        stream.end()
        self._open.discard(stream)
        if not self._open and self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.cancel()

    def end_all(self) -> None:
        """Let all streams end: the server leaves, and the pages connect to another."""
        for stream in self._open:
            stream.end()

    async def step(self) -> timedelta:
        """End the streams whose key is no longer good; read, and send what changed."""
        await self._readmit()
        digest, now = await self.read(), self._engine.clock.monotonic()
        is_due = now - self._sent_at >= REPEAT_EVERY.total_seconds()
        if is_due or self._sent is None or _without_time(digest) != _without_time(self._sent):
            self._sent, self._sent_at = digest, now
            chunk = b"event: digest\ndata: %s\n\n" % msgspec.json.encode(digest)
            for stream in self._open:
                stream.offer(chunk)
        return READ_EVERY

    async def read(self) -> LiveDigest:
        """The newest digest, read anew if it is older than a second. Calls at the same time read once."""
        async with self._reading:
            now = self._engine.clock.monotonic()
            if self._newest is None or now - self._read_at >= 0.9 * READ_EVERY.total_seconds():
                self._newest, self._read_at = await self._read_digest(now), now
            return self._newest

    async def _read_digest(self, now: float) -> LiveDigest:
        engine = self._engine
        queues = await engine.queues.list()
        workers = await engine.queues.workers()
        fleets = await engine.fleets.list()
        if now - self._history_at >= HISTORY_EVERY.total_seconds():
            self._recent, self._history_at = await self._read_recent(), now
        return LiveDigest(
            at=await engine.store.now(),
            jobs=_sum_jobs(queues),
            oldest_seconds=max(
                (queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None), default=None
            ),
            queues=tuple(sorted(queues, key=_waiting, reverse=True)[:MOST_QUEUES]),
            more_queues=max(0, len(queues) - MOST_QUEUES),
            workers=dict(Counter(str(worker.state) for worker in workers)),
            capacity=sum(worker.capacity for worker in workers if worker.state != "lost"),
            fleets=tuple(map(_live_fleet, fleets)),
            recent=self._recent,
            missing_shards=engine.store.unavailable(),
        )

    async def _read_recent(self) -> tuple[HistoryStep, ...] | None:
        until = await self._engine.store.now()
        try:
            return (await self._engine.history.read(until - HISTORY_SPAN, until)).steps
        except EventsNotKept:
            return None

    async def _readmit(self) -> None:
        """While keys cannot be read, those last read count."""
        for stream in list(self._open):
            try:
                await stream.readmit()
            except Unavailable:
                continue
            except PenstockError as error:
                logger.info("a page is told no more: %s", error.message)
                stream.end(REFUSED)


def _without_time(digest: LiveDigest) -> LiveDigest:
    return replace(digest, at=EARLIEST)


def _sum_jobs(queues: Sequence[QueueItem]) -> dict[State, int]:
    total: Counter[State] = Counter()
    for queue in queues:
        total.update(queue.jobs)
    return dict(total)


def _waiting(queue: QueueItem) -> int:
    return queue.jobs.get(State.QUEUED, 0)


def _live_fleet(item: FleetItem) -> LiveFleet:
    return LiveFleet(
        name=item.name,
        min=item.fleet.min,
        max=item.fleet.max,
        paused=item.paused,
        count=item.count,
        desired=item.desired,
        workers=item.workers,
        reason=item.reason,
        trouble=item.trouble,
    )
