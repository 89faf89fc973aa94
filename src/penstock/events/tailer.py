"""Tailers: each follows the journal of one shard and gives the live feed what is new."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from penstock.engine import Engine
from penstock.events.feed import Feed
from penstock.events.past import is_gone, oldest_at
from penstock.events.selection import EventBatch, block_of, cut_entries
from penstock.loop import run_service
from penstock.model.clock import seconds
from penstock.model.errors import Unavailable
from penstock.model.ids import ShardId
from penstock.model.journal import Entry, JournalPage, Position
from penstock.model.wire.events import MissedEvents
from penstock.store import Shard

FLUSH_EVENTS = 500
READ_EVENTS = 2_000
IDLE_PAUSE = timedelta(milliseconds=20)
LOADED_PAUSE = timedelta(milliseconds=100)
"""The time between two flushes: a flush of many events waits longer for the next, so that it holds more."""

LOOK_INTERVAL = timedelta(seconds=1)
"""How soon a move is seen whose signal was missed."""

RECHECKS = (timedelta(milliseconds=20), timedelta(milliseconds=60), timedelta(milliseconds=150))
"""When to look again after a signal: another process may be giving the new entries their numbers just then."""


def pause_after(events: int) -> timedelta:
    """How long to gather events for the next flush after one of so many."""
    return min(IDLE_PAUSE + events * timedelta(milliseconds=1), LOADED_PAUSE)


class Tailer:
    """Follows the journal of one shard, from where the feed is."""

    def __init__(self, engine: Engine, shard: Shard, feed: Feed) -> None:
        self._engine = engine
        self._shard = shard
        self._feed = feed
        self._rechecks: Sequence[timedelta] = ()
        self.wake = asyncio.Event()

    def hear(self) -> None:
        """Look now, as entries were added."""
        self._rechecks = RECHECKS
        self.wake.set()

    async def step(self) -> timedelta:
        """Number and read what is new, and publish it. Then rest, so that the next flush holds more than one event."""
        try:
            events = await self._read()
        except Unavailable:
            self._feed.note_away(self._shard.shard, away=True)
            raise
        self._feed.note_away(self._shard.shard, away=False)
        if events:
            await self._engine.clock.sleep(pause_after(events))
        return timedelta(0) if events >= READ_EVENTS else self._next_look()

    def _next_look(self) -> timedelta:
        if not self._rechecks:
            return LOOK_INTERVAL
        span, *self._rechecks = self._rechecks
        return span

    async def _read(self) -> int:
        position = await self._position()
        head = await self._shard.number_entries()
        page = await self._shard.read_journal(position.number - 1, READ_EVENTS)
        if is_gone(position, page):
            page = await self._skip(page)
            position = await self._position()
        self._note_lag(page.entries[0] if page.entries else None)
        if not page.entries and head >= position.number:
            # Entries without events. The head was read before: what has come since is not passed over.
            self._feed.begin(self._shard.shard, Position(head + 1))
        return await self._publish(page, position)

    async def _publish(self, page: JournalPage, position: Position) -> int:
        events = 0
        for slices in cut_entries(page.entries, position, FLUSH_EVENTS):
            batch = EventBatch(slices)
            await self._feed.publish(self._shard, batch)
            events += sum(one.stop - one.start for one in slices)
        return events

    async def _position(self) -> Position:
        """Where the feed is; in a shard that was away when the feed began, where it was then."""
        known = self._feed.position(self._shard.shard)
        if known is None:
            known = Position(await self._shard.find_number(self._feed.cursor.since) + 1)
            self._feed.begin(self._shard.shard, known)
        return known

    async def _skip(self, page: JournalPage) -> JournalPage:
        """Go on with the oldest entry that is kept, and say so: the shard was away for long, or was restored."""
        start = Position(page.oldest)
        self._feed.begin(self._shard.shard, start)
        since = await oldest_at(self._shard, start)
        self._feed.tell(block_of(MissedEvents("gone", self._feed.cursor_text, since), "missed"))
        return await self._shard.read_journal(start.number - 1, READ_EVENTS)

    def _note_lag(self, oldest: Entry | None) -> None:
        lag = timedelta(0) if oldest is None else self._engine.clock.now() - oldest.at
        self._engine.meters.tail_lags[self._shard.shard] = max(0.0, lag.total_seconds())


class Tailers:
    """One running tailer for each shard, woken by the signal about journals."""

    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed
        self._running: dict[ShardId, tuple[Shard, Tailer, asyncio.Task[None]]] = {}
        self._unsubscribe = engine.signals.journal.subscribe(lambda _: self.wake())

    def supervise(self) -> None:
        """Start tailers for new shards, and end those of shards that are no longer used. Call it about each second."""
        shards = {one.shard: one for one in self._engine.store.shards()}
        for number in [one for one, (shard, _, _) in self._running.items() if shards.get(one) is not shard]:
            self._end(number)
        for number in shards.keys() - self._running.keys():
            tailer = Tailer(self._engine, shards[number], self._feed)
            task = asyncio.ensure_future(run_service(f"tailer {number}", tailer.step, tailer.wake))
            self._running[number] = shards[number], tailer, task

    def wake(self) -> None:
        for _, tailer, _ in self._running.values():
            tailer.hear()

    async def close(self) -> None:
        self._unsubscribe()
        tasks = [task for _, _, task in self._running.values()]
        for number in list(self._running):
            self._end(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, number: ShardId) -> None:
        self._running.pop(number)[2].cancel()
        self._engine.meters.tail_lags.pop(number, None)


async def begin_at_head(engine: Engine, feed: Feed) -> None:
    """Let the feed begin at the end of each journal. Shards that do not answer begin later, where they are now."""
    asked = [one for one in engine.store.shards() if not one.unavailable()]
    heads = await asyncio.gather(*(_head(one) for one in asked))
    for shard, head in zip(asked, heads, strict=True):
        if head is not None:
            feed.begin(shard.shard, Position(head + 1))
    feed.away = {one.shard for one in engine.store.shards()} - feed.cursor.positions.keys()


async def _head(shard: Shard) -> int | None:
    try:
        async with asyncio.timeout(seconds(HEAD_SECONDS).total_seconds()):
            return await shard.number_entries()
    except (Unavailable, TimeoutError):
        return None


HEAD_SECONDS = 2.0
