"""The live feed of a process: what its tailers read, encoded once for each filter and given to all its readers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.past import read_jobs
from penstock.events.selection import EventBatch, StreamFilter, block_of, id_block
from penstock.model.ids import JobId, ShardId
from penstock.model.journal import Position
from penstock.model.lifecycle import State
from penstock.model.wire.events import MissingShards
from penstock.store import Shard

CLOCK_MARGIN = timedelta(seconds=1)
"""How far the clocks of shards may differ from this process's: a shard that is away is read from so much earlier."""


class Flush(Struct, frozen=True):
    """Events of one shard for the readers of one filter. `chunk` is their text with the id of the feed at its end.

    `body` has no id, for readers whose cursor is not the feed's. `state` is that of the one job that is read.
    """

    shard: ShardId
    body: bytes
    chunk: bytes
    cursor: EventCursor
    state: State | None = None


class FeedReader(Protocol):
    """A live reader. It takes what it is offered later, at its own pace."""

    @property
    def where(self) -> StreamFilter: ...

    @property
    def pending(self) -> Mapping[ShardId, Position | None]:
        """Shards, away when the reader became live, in which its own position is not the feed's."""
        ...

    def offer(self, flush: Flush) -> None: ...

    def offer_notice(self, block: bytes) -> None:
        """Something that is not in the journal."""
        ...

    def fall_behind(self, cursor: EventCursor) -> None:
        """Go on by reading the journal from this cursor of the feed, and the pending positions."""
        ...


class Feed:
    """Gives every live reader the events that its filter wants, from the position where it joined on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._groups: defaultdict[StreamFilter, set[FeedReader]] = defaultdict(set)
        self._by_job: defaultdict[JobId, set[FeedReader]] = defaultdict(set)
        self._cursor_text: tuple[EventCursor, str] | None = None
        self.cursor = EventCursor(engine.clock.now() - CLOCK_MARGIN)
        self.away: set[ShardId] = set()

    def join(self, reader: FeedReader) -> None:
        self._readers(reader.where).add(reader)

    def leave(self, reader: FeedReader) -> None:
        readers = self._readers(reader.where)
        readers.discard(reader)
        if not readers and reader.where.job is None:
            del self._groups[reader.where]
        elif not readers and reader.where.job is not None:
            del self._by_job[reader.where.job]

    def _readers(self, where: StreamFilter) -> set[FeedReader]:
        return self._groups[where] if where.job is None else self._by_job[where.job]

    def restart(self) -> None:
        """Begin now, with no position known."""
        self.cursor = EventCursor(self._engine.clock.now() - CLOCK_MARGIN)
        self.away.clear()

    def begin(self, shard: ShardId, position: Position) -> None:
        """The position at which the feed begins, or goes on, in the journal of a shard."""
        self.cursor = self.cursor.at(shard, position)

    def position(self, shard: ShardId) -> Position | None:
        return self.cursor.positions.get(shard)

    @property
    def cursor_text(self) -> str:
        if self._cursor_text is None or self._cursor_text[0] is not self.cursor:
            self._cursor_text = self.cursor, self.cursor.text
        return self._cursor_text[1]

    async def publish(self, shard: Shard, batch: EventBatch) -> None:
        """Offer a batch to all readers, and move the feed's cursor behind it."""
        read: set[JobId] = set()
        # Readers may join while jobs are read.
        while not read.issuperset(batch.jobs_for(self._groups)):
            read |= await read_jobs(self._engine, shard, batch, tuple(self._groups))
        before = self.cursor
        self.begin(shard.shard, batch.end)
        id_text = id_block(self.cursor_text)
        for where, readers in list(self._groups.items()):
            if body := batch.encode(where):
                flush = Flush(shard.shard, body, body + id_text, self.cursor)
                _offer(readers, flush, before)
        if self._by_job:
            self._publish_to_jobs(shard.shard, batch, before)

    def _publish_to_jobs(self, shard: ShardId, batch: EventBatch, before: EventCursor) -> None:
        """Each job that is read has readers of its own: looked up by the jobs of the batch, not the other way round."""
        wanted = self._by_job.keys() & {job for one in batch.slices for job in one.jobs}
        for job in wanted:
            where = StreamFilter(job=job)
            body = batch.encode(where)
            _offer(self._by_job[job], Flush(shard, body, body, self.cursor, batch.last_state(job)), before)

    def note_away(self, shard: ShardId, *, away: bool) -> None:
        """Tell all readers when a shard stops to answer, and when it answers again."""
        if away is (shard in self.away):
            return
        (self.away.add if away else self.away.discard)(shard)
        self.tell(self.away_block())

    def away_block(self) -> bytes:
        return block_of(MissingShards(tuple(sorted(self.away))), "unavailable")

    def tell(self, block: bytes) -> None:
        """Offer a notice to all live readers."""
        for readers in (*self._groups.values(), *self._by_job.values()):
            for reader in readers:
                reader.offer_notice(block)


def _offer(readers: Iterable[FeedReader], flush: Flush, before: EventCursor) -> None:
    behind: Sequence[FeedReader] = [reader for reader in readers if flush.shard in reader.pending]
    for reader in readers:
        if not reader.pending or reader not in behind:
            reader.offer(flush)
    for reader in behind:
        reader.fall_behind(before)
