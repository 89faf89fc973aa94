"""Ticks by hand: a job now, and jobs for ticks that were missed. The schedule's own course stays where it is."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.model import ticks
from penstock.model.errors import Conflict, Invalid
from penstock.model.job import Job
from penstock.model.schedule import Decision, Every, Schedule, Ticked, TickRecord, Verdict
from penstock.model.timing import from_millis, to_millis

if TYPE_CHECKING:
    from penstock.engine import Engine

BACKFILL_TICKS = 1000
"""Most ticks that one backfill may ask for."""

COUNTED_TICKS = 10_000
"""A cron expression's ticks are counted up to here, so that saying no costs little."""

BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
HISTORY_PAGE = 1000
MILLISECOND = timedelta(milliseconds=1)
TRIES = 20
"""How often a change starts again because a scheduler or another client was faster."""


class ManualTicks:
    """Guarded like any tick, and allowed while the schedule is paused: somebody asked for it."""

    def __init__(self, engine: "Engine", get: Callable[[str], Awaitable[Schedule]]) -> None:
        self._engine = engine
        self._store = engine.store
        self._get = get

    async def trigger(self, name: str) -> Job:
        for _ in range(TRIES):
            schedule, now = await self._get(name), whole_millis(await self._store.now())
            recent = await self._store.ticks(name, now + MILLISECOND, HISTORY_PAGE)
            taken = {schedule.next_tick_at, schedule.pending_tick_at, *(record.at for record in recent)}
            at = _free_instant(now, taken)
            ticked = await self._tick(schedule, [at])
            if ticked.applied:
                return ticked.jobs[0] if ticked.jobs else await self._refuse(name, at)
        raise too_busy(name)

    async def backfill(self, name: str, from_at: datetime, to_at: datetime) -> list[TickRecord]:
        """Ticks that are still to be decided are left to the schedulers."""
        for _ in range(TRIES):
            schedule = await self._get(name)
            wanted = await self._find_unrecorded(schedule, _range_of(schedule, from_at, to_at, await self._store.now()))
            if not wanted:
                return []
            if (await self._tick(schedule, wanted)).applied:
                return await self._find_recorded(name, wanted)
        raise too_busy(name)

    async def _refuse(self, name: str, at: datetime) -> Job:
        """For a trigger that could make no job."""
        (record,) = await self._store.ticks(name, at + MILLISECOND, 1)
        raise Invalid(f"schedule {name!r} gives no job now: {record.skipped}")

    async def _tick(self, schedule: Schedule, instants: Sequence[datetime]) -> Ticked:
        decision = Decision(
            name=schedule.name,
            version=schedule.version,
            expected_tick_at=schedule.next_tick_at,
            expected_pending_at=schedule.pending_tick_at,
            next_tick_at=schedule.next_tick_at,
            pending_tick_at=schedule.pending_tick_at,
            verdicts=tuple(map(Verdict, instants)),
            by_hand=True,
        )
        (ticked,) = await self._engine.ticks.tick([decision])
        return ticked

    async def _find_unrecorded(self, schedule: Schedule, instants: Sequence[datetime]) -> list[datetime]:
        if not instants:
            return []
        recorded = {record.at for record in await self._read_records(schedule.name, instants[0], instants[-1])}
        return [at for at in instants if at not in recorded and at != schedule.pending_tick_at]

    async def _find_recorded(self, name: str, instants: Sequence[datetime]) -> list[TickRecord]:
        wanted = set(instants)
        found = await self._read_records(name, instants[0], instants[-1])
        return [record for record in reversed(found) if record.at in wanted]

    async def _read_records(self, name: str, first: datetime, last: datetime) -> list[TickRecord]:
        """The history from one instant to another, both included, newest first."""
        found: list[TickRecord] = []
        before = last + MILLISECOND
        while page := await self._store.ticks(name, before, HISTORY_PAGE):
            found += [record for record in page if record.at >= first]
            before = page[-1].at
            if before < first or len(page) < HISTORY_PAGE:
                break
        return found


def whole_millis(at: datetime) -> datetime:
    """An instant as the stores keep it."""
    return from_millis(to_millis(at))


def too_busy(name: str) -> Conflict:
    return Conflict(f"schedule {name!r} changed {TRIES} times while it was to be changed; try again")


def _free_instant(now: datetime, taken: set[datetime | None]) -> datetime:
    """The latest millisecond up to now that is no tick yet."""
    at = now
    while at in taken:
        at -= MILLISECOND
    return at


def _range_of(schedule: Schedule, from_at: datetime, to_at: datetime, now: datetime) -> list[datetime]:
    """The ticks of a backfill; Invalid when there can be none, or they are too many."""
    if ticks.counts_from_completion(schedule.when):
        raise Invalid(f"schedule {schedule.name!r} counts from completions: it has no ticks that could be filled in")
    if to_at < from_at:
        raise Invalid(f"to: {to_at.isoformat()} is before from, {from_at.isoformat()}; swap them")
    if to_at > now:
        raise Invalid(f"to: {to_at.isoformat()} has not come yet, it is {now.isoformat()}; a tick never runs early")
    until = to_at if schedule.next_tick_at is None else min(to_at, schedule.next_tick_at - MILLISECOND)
    found = _ticks_between(schedule, from_at, until, BACKFILL_TICKS + 1)
    if len(found) > BACKFILL_TICKS:
        many = _how_many(schedule, found[0], until)
        raise Invalid(
            f"from: there are {many} ticks until {until.isoformat()}; ask for at most {BACKFILL_TICKS:,} at once"
        )
    return found


def _how_many(schedule: Schedule, first: datetime, until: datetime) -> str:
    if isinstance(schedule.when, Every):
        return f"{(min(until, schedule.end_at or until) - first) // schedule.when.span + 1:,}"
    count = len(_ticks_between(schedule, first, until, COUNTED_TICKS))
    return f"{count:,}" if count < COUNTED_TICKS else f"{count:,} or more"


def _ticks_between(schedule: Schedule, from_at: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first so many ticks from one instant to another, both included."""
    start_at = from_at if schedule.start_at is None else max(from_at, schedule.start_at)
    return ticks.ticks_between(schedule.when, BEFORE_ALL, until, limit, start_at=start_at, end_at=schedule.end_at)
