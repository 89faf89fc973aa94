"""The client's operations on schedules: create, get, change, pause, trigger, preview, backfill, delete."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import UNSET
from msgspec.structs import replace

from penstock.engine.parts import EngineParts
from penstock.engine.schedule_spec import changed_body, is_outdated, new_schedule, replaced, same_intention, when_of
from penstock.engine.scheduler_api import Ticks
from penstock.model import ticks
from penstock.model.clock import from_millis, seconds, to_millis
from penstock.model.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from penstock.model.job import Job
from penstock.model.schedule import Cron, Decision, Every, Schedule, Ticked, TickRecord, Verdict
from penstock.model.wire.schedules import OnConflict, ScheduleBody, ScheduleChange, ScheduleRequest, WhenBody
from penstock.store import Store

BACKFILL_TICKS = 1000
"""Most ticks that one backfill may ask for."""

COUNTED_TICKS = 10_000
"""The ticks of a cron expression are counted up to here, so that a refusal is cheap."""

BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
HISTORY_PAGE = 1000
MILLISECOND = timedelta(milliseconds=1)
TRIES = 20
"""How often a change is tried again after a scheduler or another client changed the schedule first."""


class ManualTicks:
    """Ticks that a client asks for. Guarded like any tick, and allowed while the schedule is paused."""

    def __init__(self, store: Store, ticks: Ticks, get: Callable[[str], Awaitable[Schedule]]) -> None:
        self._store = store
        self._ticks = ticks
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
        raise too_many_changes(name)

    async def backfill(self, name: str, from_at: datetime, to_at: datetime) -> list[TickRecord]:
        """Decide the ticks of a range that have no record; those still to come are left to the schedulers."""
        for _ in range(TRIES):
            schedule = await self._get(name)
            wanted = await self._find_unrecorded(schedule, _range_of(schedule, from_at, to_at, await self._store.now()))
            if not wanted:
                return []
            if (await self._tick(schedule, wanted)).applied:
                return await self._find_recorded(name, wanted)
        raise too_many_changes(name)

    async def _refuse(self, name: str, at: datetime) -> Job:
        """Raise why a trigger could make no job."""
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
        (ticked,) = await self._ticks.tick([decision])
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


def too_many_changes(name: str) -> Conflict:
    return Conflict(f"schedule {name!r} changed {TRIES} times while it was to be changed; try again")


def _free_instant(now: datetime, taken: set[datetime | None]) -> datetime:
    """The latest millisecond up to `now` that is not the instant of a tick."""
    at = now
    while at in taken:
        at -= MILLISECOND
    return at


def _range_of(schedule: Schedule, from_at: datetime, to_at: datetime, now: datetime) -> list[datetime]:
    """The ticks of a backfill; Invalid if there can be none, or if they are too many."""
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
    """The first `limit` ticks from one instant to another, both included."""
    start_at = from_at if schedule.start_at is None else max(from_at, schedule.start_at)
    return ticks.ticks_between(schedule.when, BEFORE_ALL, until, limit, start_at=start_at, end_at=schedule.end_at)


Edit = Callable[[Schedule, datetime], Awaitable[Schedule]]


class Schedules:
    """Schedules. An operation that is refused changes nothing.

    `queues`: only schedules whose jobs go to these may be made, seen or changed; Forbidden for others. None: all.
    """

    def __init__(self, parts: EngineParts, ticks: Ticks, queues: Collection[str] | None = None) -> None:
        self._parts = parts
        self._ticks = ticks
        self._store = parts.store
        self._catalog = parts.catalog
        self._queues = queues
        self._manual = ManualTicks(parts.store, ticks, self.get)

    def within(self, queues: Collection[str] | None) -> "Schedules":
        """The same operations, limited to schedules whose jobs go to these queues."""
        return self if queues is None else Schedules(self._parts, self._ticks, queues)

    async def create(self, request: ScheduleRequest) -> tuple[Schedule, bool]:
        """The schedule, and whether it was made; if there is one of that name, `on_conflict` says what to do."""
        now = await self.now()
        wanted = await self.check(request.name, request, now)
        if request.code_age_seconds is not None:
            wanted = replace(wanted, deployed_at=whole_millis(now - seconds(request.code_age_seconds)))
        if (made := await self._store.put_schedule(wanted, None)) is not None:
            return self._publish(made), True
        match request.on_conflict:
            case OnConflict.RAISE:
                raise Conflict(
                    f"there is a schedule {request.name!r} already; say on_conflict=replace to make it this, "
                    "on_conflict=skip to leave it as it is, or choose another name"
                )
            case OnConflict.SKIP:
                return await self.get(request.name), False
            case OnConflict.REPLACE:
                return await self._replace(wanted, request)

    async def replace(self, name: str, body: ScheduleBody) -> tuple[Schedule, bool]:
        """Make the schedule what the body says; the schedule, and whether it is new."""
        return await self._replace(await self.check(name, body, await self.now()), body)

    async def _replace(self, wanted: Schedule, body: ScheduleBody) -> tuple[Schedule, bool]:
        if (made := await self._store.put_schedule(wanted, None)) is not None:
            return self._publish(made), True

        async def make_so(old: Schedule, _: datetime) -> Schedule:
            if is_outdated(wanted, old):
                return old
            # A program that declares its schedules at each start must not resume what an operator has paused.
            new = replace(wanted, paused=old.paused) if body.paused is UNSET else wanted
            return old if same_intention(old, new) else replaced(old, new)

        return await self._change(wanted.name, make_so), False

    async def update(self, name: str, change: ScheduleChange) -> Schedule:
        """Change the fields that are given. With another interval or cron, the next tick is the first from now on."""

        async def apply(old: Schedule, now: datetime) -> Schedule:
            return replaced(old, await self.check(name, changed_body(old, change), now))

        return await self._change(name, apply)

    async def pause(self, name: str) -> Schedule:
        """Let no tick become a job until the schedule is resumed; idempotent."""
        return await self._pause(name, paused=True)

    async def resume(self, name: str) -> Schedule:
        """Resume; the misfire policy decides about the ticks that were missed meanwhile."""
        return await self._pause(name, paused=False)

    async def _pause(self, name: str, *, paused: bool) -> Schedule:
        async def set_paused(old: Schedule, now: datetime) -> Schedule:
            return old if old.paused == paused else replace(old, paused=paused, updated_at=now)

        return await self._change(name, set_paused)

    async def get(self, name: str) -> Schedule:
        (found,) = await self._store.get_schedules([name])
        if found is None:
            raise NotFound(f"there is no schedule {name!r}")
        await self._refuse_foreign(found)
        return found

    async def list(self, after: str | None, limit: int) -> tuple[Sequence[Schedule], str | None]:
        """Schedules by name, and the cursor of the next page."""
        found = await self._store.schedules(after, limit)
        cursor = found[-1].name if len(found) == limit else None
        return found if self._queues is None else [one for one in found if await self._is_own(one)], cursor

    async def delete(self, name: str) -> None:
        """Delete the schedule and its history; its jobs stay."""
        if self._queues is not None:
            await self.get(name)
        if not await self._store.drop_schedule(name):
            raise NotFound(f"there is no schedule {name!r}")
        self._parts.signals.schedules.publish(None)

    async def history(self, name: str, before: datetime | None, limit: int) -> Sequence[TickRecord]:
        """The records of its ticks, newest first."""
        await self.get(name)
        return await self._store.ticks(name, before, limit)

    async def preview(self, name: str, count: int) -> Sequence[datetime]:
        """The next ticks of a schedule, its very next one first."""
        schedule = await self.get(name)
        if schedule.next_tick_at is None:
            return []
        just_before = schedule.next_tick_at - MILLISECOND
        if ticks.counts_from_completion(schedule.when):
            return [schedule.next_tick_at]
        return _preview(schedule.when, just_before, count, schedule.start_at, schedule.end_at)

    async def preview_of(self, body: WhenBody, count: int) -> Sequence[datetime]:
        """The next ticks of a schedule that is not stored."""
        return _preview(when_of(body), await self.now(), count, body.start_at, body.end_at)

    async def trigger(self, name: str) -> Job:
        """A job now, recorded as a tick; the ticks to come stay as they are."""
        return await self._manual.trigger(name)

    async def backfill(self, name: str, from_at: datetime, to_at: datetime) -> Sequence[TickRecord]:
        """Give a job to each tick of the range that has no record; the new records, earliest first."""
        return await self._manual.backfill(name, from_at, to_at)

    async def check(self, name: str, body: ScheduleBody, now: datetime) -> Schedule:
        """The schedule that the body describes; Invalid if no job could be made of it now."""
        schedule = new_schedule(name, body, now)
        limit = self._parts.settings.limits.inline_bytes
        if len(schedule.params) > limit:
            raise TooLarge(
                f"params: a schedule keeps at most {limit:,} bytes (limits.inline_bytes); "
                "let its job read the rest from elsewhere"
            )
        self._catalog.require_types()
        allow_unknown = self._parts.settings.server.allow_unknown_types
        declared = (await self._catalog.read()).type(body.type, allow_unknown=allow_unknown)
        self._catalog.check(declared, schedule.params)
        await self._refuse_foreign(schedule)
        return schedule

    async def _refuse_foreign(self, schedule: Schedule) -> None:
        if self._queues is not None and not await self._is_own(schedule):
            raise Forbidden(
                f"the jobs of schedule {schedule.name!r} go to a queue that this API key is not for; "
                f"it is for {', '.join(sorted(self._queues))}"
            )

    async def _is_own(self, schedule: Schedule) -> bool:
        reading = await self._catalog.read()
        declared = reading.types.get(reading.run_as(schedule.type))
        queue = schedule.queue or (schedule.type if declared is None else declared.queue)
        return self._queues is None or queue in self._queues

    async def _change(self, name: str, edit: Edit) -> Schedule:
        for _ in range(TRIES):
            old = await self.get(name)
            new = await edit(old, await self.now())
            if new == old:
                return old
            if (stored := await self._store.put_schedule(new, old.version)) is not None:
                return self._publish(stored)
        raise too_many_changes(name)

    def _publish(self, stored: Schedule) -> Schedule:
        self._parts.signals.schedules.publish(None)
        return stored

    async def now(self) -> datetime:
        """The shard's clock, in whole milliseconds, as it keeps them."""
        return whole_millis(await self._store.now())


def _preview(
    when: Every | Cron, after: datetime, count: int, start_at: datetime | None, end_at: datetime | None
) -> Sequence[datetime]:
    return ticks.preview(when, after, count, start_at=start_at, end_at=end_at)
