"""One reader of events: first its past, read from the journals at its own pace, then the live feed."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.feed import Feed, Flush
from penstock.events.past import oldest_at, read_jobs, read_past, resolve_position
from penstock.events.selection import EventBatch, StreamFilter, block_of, id_block
from penstock.model.errors import Unavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.journal import Position
from penstock.model.wire.events import MissedEvents
from penstock.store import Shard

MAX_FLUSHES = 64
MAX_BYTES = 1 << 20
"""A reader that is further behind is told that it missed events, and goes on live."""

HEARTBEAT = timedelta(seconds=15)
RETRY_MILLIS = 2_000
PAST_EVENTS = 500
PAST_PAUSE = timedelta(milliseconds=200)

RETRY = b"retry: %d\n\n" % RETRY_MILLIS
"""How long a browser waits before it connects again."""


class Queued(Struct, frozen=True):
    """What a reader has still to take; `cursor` None where it leaves the cursor as it is."""

    chunk: bytes
    cursor: EventCursor | None = None


class EventStream:
    """The events that one client reads, as chunks of a stream. `readmit` raises once its key is no longer good."""

    past_events = PAST_EVENTS

    def __init__(
        self, engine: Engine, feed: Feed, reading: asyncio.Semaphore, where: StreamFilter, cursor: EventCursor | None
    ) -> None:
        self._engine = engine
        self._feed = feed
        self._reading = reading
        self._queue: deque[Queued] = deque()
        self._size = 0
        self._missed_from: EventCursor | None = None
        self.is_live = False
        self._wake = asyncio.Event()
        self._given_at = engine.clock.monotonic()
        self.where = where
        self.cursor = cursor or feed.cursor
        self.pending: Mapping[ShardId, Position | None] = {}
        self.readmit: Callable[[], Awaitable[object]] | None = None
        self.is_taken = True
        """Whether the client has taken what it was last given."""
        self.has_ended = False
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- the client's side

    async def chunks(self) -> AsyncIterator[bytes]:
        """Everything, until the stream ends."""
        yield self._give(self._opening())
        while not self.has_ended:
            self.is_taken = True
            if not self.is_live:
                if chunk := await self._read_past():
                    yield self._give(chunk)
            elif chunk := self._take():
                yield self._give(chunk)
            else:
                await self._wait()

    def _opening(self) -> bytes:
        away = self._feed.away_block() if self._feed.away else b""
        return RETRY + id_block(self.cursor.text) + away

    def _give(self, chunk: bytes) -> bytes:
        self.is_taken = False
        self._given_at = self._engine.clock.monotonic()
        return chunk

    def _take(self) -> bytes:
        if self._missed_from is not None:
            missed, self._missed_from = self._missed_from, None
            return block_of(MissedEvents("slow", missed.text), "missed")
        if not self._queue:
            return b""
        taken = self._queue.popleft()
        self._size -= len(taken.chunk)
        self.cursor = taken.cursor or self.cursor
        return taken.chunk

    async def _wait(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    # -- the feed's side

    def offer(self, flush: Flush) -> None:
        if not self.pending:
            self._add(Queued(flush.chunk, flush.cursor))
        else:
            own = self._own_cursor(flush.cursor)
            self._add(Queued(flush.body + id_block(own.text), own))

    def offer_notice(self, block: bytes) -> None:
        self._add(Queued(block))

    def _add(self, one: Queued) -> None:
        if self._queue and (len(self._queue) >= MAX_FLUSHES or self._size + len(one.chunk) > MAX_BYTES):
            self._missed_from = self._missed_from or self.cursor
            self._drop_queue()
        self._queue.append(one)
        self._size += len(one.chunk)
        self._wake.set()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._size = 0

    def fall_behind(self, cursor: EventCursor) -> None:
        """Read the journal again, from the cursor of what is queued on: what is queued is dropped."""
        self._drop_queue()
        self.cursor = self._own_cursor(self.cursor)
        self.is_live = False
        self._feed.leave(self)
        self._wake.set()

    def _own_cursor(self, cursor: EventCursor) -> EventCursor:
        """The feed's cursor, with the reader's own positions in shards that were away when it became live."""
        own = {shard: at for shard, at in self.pending.items() if at is not None}
        positions = {shard: at for shard, at in cursor.positions.items() if shard not in self.pending}
        return replace(cursor, since=min(self.cursor.since, cursor.since), positions=positions | own)

    # -- the past

    async def _read_past(self) -> bytes:
        """A chunk of the past, until the reader has met the feed and is live."""
        behind = await self._behind()
        if behind is None:
            return b""
        if not behind:
            return await self._wait_for_feed()
        async with self._reading:
            body = b"".join([await self._read_shard(shard) for shard in behind])
        is_late = self._engine.clock.monotonic() - self._given_at > HEARTBEAT.total_seconds()
        return body + id_block(self.cursor.text) if body or is_late else b""

    async def _wait_for_feed(self) -> bytes:
        """Wait for a feed that is behind this reader: the reader has come from another server.

        A position beyond the journal is of another one, before a restore: the reader goes on with the feed.
        """
        for shard in filter(self._concerns, self._engine.store.shards()):
            own, feed = self.cursor.positions.get(shard.shard), self._feed.position(shard.shard)
            if own is not None and feed is not None and own.number > await shard.number_entries() + 1:
                self.cursor = self.cursor.at(shard.shard, feed)
                return block_of(MissedEvents("gone", self.cursor.text), "missed")
        await self._engine.clock.sleep(PAST_PAUSE)
        return b""

    async def _behind(self) -> list[Shard] | None:
        """The shards in which this reader is behind the feed; None once it has joined the feed."""
        shards = [one for one in self._engine.store.shards() if self._concerns(one)]
        for one in shards:
            await self._resolve(one)
        here = {one.shard: self._feed.position(one.shard) for one in shards}
        # From here on nothing is awaited: the feed does not move between the comparison and the joining.
        own = self.cursor.positions
        apart = [one for one in shards if here[one.shard] not in (None, own.get(one.shard))]
        if not apart:
            self._join()
            return None
        return [one for one in apart if _is_before(own.get(one.shard), here[one.shard])]

    def _concerns(self, shard: Shard) -> bool:
        return self.where.job is None or shard_of(self.where.job) == shard.shard

    async def _resolve(self, shard: Shard) -> None:
        """Turn the instant of the cursor into a position, if the shard answers."""
        if shard.shard in self.cursor.positions or self._feed.position(shard.shard) is None:
            return
        try:
            position = await resolve_position(shard, self.cursor)
        except Unavailable:
            await self._engine.clock.sleep(PAST_PAUSE)
            return
        self.cursor = self.cursor.at(shard.shard, position)

    def _join(self) -> None:
        feed = self._feed.cursor
        self.pending = {
            one.shard: self.cursor.positions.get(one.shard)
            for one in self._engine.store.shards()
            if self._concerns(one) and one.shard not in feed.positions and self._is_own(one.shard)
        }
        self.cursor = self._own_cursor(feed)
        self.is_live = True
        self._feed.join(self)

    def _is_own(self, shard: ShardId) -> bool:
        return shard in self.cursor.positions or self.cursor.since < self._feed.cursor.since

    async def _read_shard(self, shard: Shard) -> bytes:
        start, stop = self.cursor.positions[shard.shard], self._feed.cursor.positions[shard.shard]
        try:
            past = await read_past(shard, start, self.past_events, stop)
            for batch in past.batches:
                await read_jobs(self._engine, shard, batch, (self.where,))
                self._note_past(batch)
            missed = await self._tell_gone(shard, past.end) if past.gone else b""
        except Unavailable:
            await self._engine.clock.sleep(PAST_PAUSE)
            return b""
        self.cursor = self.cursor.at(shard.shard, past.end)
        return missed + b"".join([batch.encode(self.where) for batch in past.batches])

    def _note_past(self, batch: EventBatch) -> None:
        """Look at a batch of the past before it is sent."""

    async def _tell_gone(self, shard: Shard, end: Position) -> bytes:
        since = await oldest_at(shard, Position(1))
        return block_of(MissedEvents("gone", self.cursor.at(shard.shard, end).text, since), "missed")

    # -- its keeper's side

    def beat(self) -> None:
        """Send the cursor to a client that was given nothing for a while: it shows that the stream is alive."""
        quiet = self._engine.clock.monotonic() - self._given_at
        if self.is_live and not self._queue and quiet >= HEARTBEAT.total_seconds():
            self.cursor = self._own_cursor(self._feed.cursor) if self.pending else self._feed.cursor
            self._add(Queued(b": heartbeat\n" + id_block(self.cursor.text)))

    def stuck_for(self) -> timedelta:
        """How long the client has not taken what it was given."""
        waiting = 0.0 if self.is_taken else self._engine.clock.monotonic() - self._given_at
        return timedelta(seconds=waiting)

    def end(self) -> None:
        """Let the stream end after what the client is taking now."""
        self.has_ended = True
        self._wake.set()

    def abort(self) -> None:
        """Let the stream end now: its client takes nothing."""
        self.end()
        if not self.aborted.done():
            self.aborted.set_result(None)

    def close(self) -> None:
        """Leave the feed."""
        self.end()
        if self.is_live:
            self.is_live = False
            self._feed.leave(self)


def _is_before(own: Position | None, feed: Position | None) -> bool:
    return own is not None and feed is not None and own < feed
