"""The past of journals: positions, pages of events, and what a stream reads before it is live."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import merge

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.selection import EventBatch, StreamFilter, cut_entries
from penstock.model.errors import JournalGone, Unavailable
from penstock.model.ids import JobId, ShardId, shard_of
from penstock.model.job import Job
from penstock.model.journal import JournalPage, Position
from penstock.model.wire.events import EventItem, EventPage
from penstock.store import Shard
from penstock.store.answers import gather_answers

SCANNED_EVENTS = 5_000
"""So many events of each shard are looked through for one page, at about the most."""


async def resolve_position(shard: Shard, cursor: EventCursor) -> Position:
    """Where the cursor is in the journal of a shard."""
    known = cursor.positions.get(shard.shard)
    return known if known is not None else Position(await shard.find_number(cursor.since) + 1)


def is_gone(position: Position, page: JournalPage) -> bool:
    """Whether entries after a position are no longer kept, or the position is of another journal, before a restore."""
    return position.number < page.oldest or position.number > page.head + 1


async def read_jobs(engine: Engine, shard: Shard, batch: EventBatch, filters: Iterable[StreamFilter]) -> set[JobId]:
    """Read the jobs that these filters need to know of a batch; their ids."""
    wanted = batch.jobs_for(filters)
    if wanted:
        found: list[Job] = [job for job in await shard.get(wanted) if isinstance(job, Job)]
        items = await engine.jobs.items(found)
        batch.add_jobs({job.id: job for job in found}, {item.id: item for item in items})
    return set(wanted)


class PastEvents(Struct, frozen=True):
    """What one read of a journal gave, and the position after it. `gone`: it begins later than it was asked to."""

    batches: Sequence[EventBatch]
    end: Position
    more: bool
    gone: bool = False


async def read_past(shard: Shard, start: Position, limit: int, stop: Position) -> PastEvents:
    """Events from a position on, before `stop`; from the oldest that is kept if the position is gone.

    All entries before `stop` must have been visible before. Some of them may hold no events, and are not read.
    """
    page = await shard.read_journal(start.number - 1, limit)
    gone = is_gone(start, page)
    if gone:
        start = Position(page.oldest)
        page = await shard.read_journal(start.number - 1, limit)
    batches = [EventBatch(slices) for slices in cut_entries(page.entries, start, limit, stop)]
    end = min(Position(page.entries[-1].number + 1), stop) if page.entries else stop
    return PastEvents(batches, end, more=end < stop, gone=gone)


async def oldest_at(shard: Shard, position: Position) -> datetime | None:
    """When the first entry at or after a position was written."""
    page = await shard.read_journal(position.number - 1, 1)
    return page.entries[0].at if page.entries else None


Placed = tuple[ShardId, Position, EventItem]
"""An event of a shard, and the position after it."""


class _Reading(Struct, frozen=True):
    """What a page read from one shard, from `start` on."""

    shard: ShardId
    start: Position
    past: PastEvents
    events: Sequence[Placed]

    def end(self, taken: Sequence[Placed]) -> Position:
        """The position after those of its events that were taken."""
        mine = [position for shard, position, _ in taken if shard == self.shard]
        if len(mine) == len(self.events):
            return self.past.end
        return mine[-1] if mine else self.start


async def read_page(engine: Engine, where: StreamFilter, cursor: EventCursor, limit: int) -> EventPage:
    """A page of events after a cursor. JournalGone if the journal of a shard does not go back so far."""
    shards = [one for one in engine.store.shards() if where.job is None or one.shard == shard_of(where.job)]
    asked = [one for one in shards if not one.unavailable()]
    answers = await gather_answers([_read_shard(engine, where, cursor, one) for one in asked])
    readings = [answer for answer in answers if isinstance(answer, _Reading)]
    refusals = [answer for answer in answers if isinstance(answer, Unavailable)]
    if refusals and not readings:
        raise refusals[0]
    missing = {one.shard for one in shards} - {one.shard for one in readings}
    merged = list(merge(*(one.events for one in readings), key=lambda placed: placed[2].at))
    taken, left = merged[:limit], len(merged) > limit
    positions = {one.shard: one.end(taken) for one in readings}
    return EventPage(
        tuple(item for _, _, item in taken),
        replace(cursor, positions={**cursor.positions, **positions}).text,
        left or any(one.past.more for one in readings),
        tuple(sorted(missing)),
    )


async def _read_shard(engine: Engine, where: StreamFilter, cursor: EventCursor, shard: Shard) -> _Reading:
    head = await shard.number_entries()
    start = await resolve_position(shard, cursor)
    past = await read_past(shard, start, SCANNED_EVENTS, max(start, Position(head + 1)))
    if past.gone:
        since = await oldest_at(shard, Position(1))
        raise JournalGone(
            f"after: events at this cursor are no longer kept: the journal of shard {shard.shard} goes back to "
            f"{since.isoformat() if since else 'now'} (retention.events_seconds); leave it out to begin there"
        )
    for batch in past.batches:
        await read_jobs(engine, shard, batch, (where,))
    events = [(shard.shard, *placed) for batch in past.batches for placed in batch.select(where)]
    return _Reading(shard.shard, start, past, events)
