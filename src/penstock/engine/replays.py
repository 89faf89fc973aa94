"""Events of the past, found in the journal of a shard to be delivered again."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from penstock.model.declarations import plain_type
from penstock.model.errors import Invalid, JournalGone, NotFound
from penstock.model.events import event_id, job_event, pack_event
from penstock.model.ids import JobId, created_at
from penstock.model.job import Job
from penstock.model.journal import Entry, EntryEvent, Parked, ParkedState, Position
from penstock.model.subscriptions import Subscription
from penstock.store import Shard

MOST_REPLAYED = 10_000
MOST_SCANNED = 2_000_000
"""So many events of each shard are looked through at the most: about a minute."""

_PAGE_EVENTS = 5_000


class ReplayPlan(Struct, frozen=True, kw_only=True):
    """A span of time to replay. What is older than `kept_since` may have been removed."""

    subscription: Subscription
    since: datetime
    until: datetime
    kept_since: datetime

    def check_count(self, events: int, scanned: int = 0) -> None:
        """Raise Invalid for more than one call may replay."""
        if events > MOST_REPLAYED:
            raise Invalid(
                f"from, to: more than {MOST_REPLAYED:,} events of this span fit the subscription's filter; "
                "replay shorter spans, one after the other"
            )
        if scanned > MOST_SCANNED:
            raise Invalid(
                f"from, to: the span has more than {MOST_SCANNED:,} events to look through; replay a shorter one"
            )


async def find_span(shard: Shard, plan: ReplayPlan) -> list[Parked]:
    """The events of a span that fit the filter and that the relay has passed. JournalGone if some may be gone."""
    await shard.number_entries()
    before = await shard.find_number(plan.since)
    await _refuse_gone(shard, plan, before)
    end = await _relay_position(shard, plan.subscription)
    found: list[Parked] = []
    scanned = 0
    async for entry in _read_entries(shard, before, plan.until, end):
        scanned += len(entry.jobs)
        if plan.subscription.filter.fits_move(plain_type(entry.type), entry.queue, entry.after):
            found += await _select_events(shard, plan.subscription, entry, end)
        plan.check_count(len(found), scanned)
    return found


async def find_event(shard: Shard, subscription: Subscription, job: JobId, version: int) -> list[Parked]:
    """One event, parked or in the journal; none if the relay has not come to it. NotFound or JournalGone otherwise."""
    parked = [*await shard.read_parked_of(subscription.name, [job])]
    parked += await shard.read_parked(subscription.name, ParkedState.DEAD, MOST_REPLAYED)
    known = next((one for one in parked if (one.job, one.version) == (job, version)), None)
    if known is not None:
        return [Parked(job=job, version=version, event=known.event)]
    end = await _relay_position(shard, subscription)
    await shard.number_entries()
    entry, index = await _find_in_journal(shard, job, version)
    return [] if Position(entry.number, index) >= end else [_parked(entry, _event_at(entry, index))]


async def _find_in_journal(shard: Shard, job: JobId, version: int) -> tuple[Entry, int]:
    """The entry that has an event, and at which index."""
    begin, until = await _bounds(shard, job, version)
    before, scanned = await shard.find_number(begin), 0
    page = await shard.read_journal(before, 1)
    async for entry in _read_entries(shard, before, until):
        for index, one in enumerate(entry.jobs):
            if one == job and entry.versions[index] == version:
                return entry, index
        scanned += len(entry.jobs)
        if scanned > MOST_SCANNED:
            break
    if page.oldest > 1 and before < page.oldest:
        raise JournalGone(f"event {event_id(job, version)} is no longer kept (retention.events_seconds)")
    raise NotFound(f"there is no event {event_id(job, version)} in the journal of shard {shard.shard}")


async def _bounds(shard: Shard, job: JobId, version: int) -> tuple[datetime, datetime | None]:
    """Between which instants a job got a version, as far as the job itself tells."""
    (found,) = await shard.get([job])
    if not isinstance(found, Job):
        return created_at(job), None
    if found.completed_at is not None and version == found.version:
        return found.completed_at, None
    return min(created_at(job), found.created_at), found.completed_at


async def _relay_position(shard: Shard, subscription: Subscription) -> Position:
    """Where the relay goes on; before its first write, where the subscription begins."""
    position = (await shard.relay_state(subscription.name)).position
    return position or Position(await shard.find_number(subscription.created_at) + 1)


async def _refuse_gone(shard: Shard, plan: ReplayPlan, before: int) -> None:
    page = await shard.read_journal(before, 1)
    is_cut = page.oldest > 1 and before < page.oldest and plan.since < plan.kept_since
    if is_cut:
        oldest = await shard.read_journal(page.oldest - 1, 1)
        since = f"{oldest.entries[0].at:%Y-%m-%dT%H:%M:%SZ}" if oldest.entries else "now"
        raise JournalGone(
            f"from: events of that time are no longer kept (retention.events_seconds): the journal of shard "
            f"{shard.shard} goes back to {since}"
        )


async def _read_entries(
    shard: Shard, after: int, until: datetime | None, end: Position | None = None
) -> AsyncIterator[Entry]:
    """The entries after a number, up to an instant and a position."""
    while True:
        page = await shard.read_journal(after, _PAGE_EVENTS)
        for entry in page.entries:
            if (until is not None and entry.at > until) or (end is not None and Position(entry.number) >= end):
                return
            yield entry
        if not page.entries:
            return
        after = page.entries[-1].number


async def _select_events(shard: Shard, subscription: Subscription, entry: Entry, end: Position) -> list[Parked]:
    """The events of an entry before a position whose jobs have one of the tags."""
    events = [one for index, one in enumerate(entry.events()) if Position(entry.number, index) < end]
    if subscription.filter.tags is not None:
        tagged = await _find_tagged(shard, subscription, [one.job for one in events])
        events = [one for one in events if one.job in tagged]
    return [_parked(entry, one) for one in events]


async def _find_tagged(shard: Shard, subscription: Subscription, jobs: Sequence[JobId]) -> set[JobId]:
    """Those of the jobs that have a wanted tag. Of a job that is gone nothing is known, so it has none."""
    found: Iterable[Job | None] = await shard.get(list(dict.fromkeys(jobs)))
    return {job.id for job in found if job is not None and subscription.filter.fits_tags(job.tags)}


def _event_at(entry: Entry, index: int) -> EntryEvent:
    return next(entry.events(index))


def _parked(entry: Entry, one: EntryEvent) -> Parked:
    return Parked(job=one.job, version=one.version, event=pack_event(job_event(entry, one)))
