"""Schedules as their owners see them: create, look at, change, pause, trigger, preview, backfill, delete."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from penstock.engine.by_hand import MILLISECOND, TRIES, ManualTicks, too_busy, whole_millis
from penstock.engine.intention import changed_body, is_outdated, new_schedule, replaced, same_intention, when_of
from penstock.model import ticks
from penstock.model.errors import Conflict, Forbidden, NotFound, TooLarge
from penstock.model.job import Job
from penstock.model.schedule import Cron, Every, Schedule, TickRecord
from penstock.model.schedule_wire import OnConflict, ScheduleBody, ScheduleChange, ScheduleRequest, WhenBody
from penstock.model.timing import seconds

if TYPE_CHECKING:
    from penstock.engine import Engine

Edit = Callable[[Schedule, datetime], Awaitable[Schedule]]


class Schedules:
    """The client's moves on schedules. What is refused leaves nothing behind.

    `queues`: only schedules whose jobs go to these can be made, seen or touched; Forbidden for others. None: all can.
    """

    def __init__(self, engine: "Engine", queues: Collection[str] | None = None) -> None:
        self._engine = engine
        self._store = engine.store
        self._queues = queues
        self._by_hand = ManualTicks(engine, self.get)

    def within(self, queues: Collection[str] | None) -> "Schedules":
        """The same, limited to schedules whose jobs go to these queues."""
        return self if queues is None else Schedules(self._engine, queues)

    async def create(self, request: ScheduleRequest) -> tuple[Schedule, bool]:
        """Make the schedule, and True; where there is one of that name, do as `on_conflict` says, and False."""
        now = await self.now()
        wanted = await self.check(request.name, request, now)
        if request.code_age_seconds is not None:
            wanted = replace(wanted, deployed_at=whole_millis(now - seconds(request.code_age_seconds)))
        if (made := await self._store.put_schedule(wanted, None)) is not None:
            return self._noted(made), True
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
        """Make the schedule what the body says, whether there is one (False) or not (True)."""
        return await self._replace(await self.check(name, body, await self.now()), body)

    async def _replace(self, wanted: Schedule, body: ScheduleBody) -> tuple[Schedule, bool]:
        if (made := await self._store.put_schedule(wanted, None)) is not None:
            return self._noted(made), True

        async def made_so(old: Schedule, _: datetime) -> Schedule:
            if is_outdated(wanted, old):
                return old
            # A program that declares its schedules at each start must not resume what somebody has paused.
            new = replace(wanted, paused=old.paused) if body.paused is UNSET else wanted
            return old if same_intention(old, new) else replaced(old, new)

        return await self._change(wanted.name, made_so), False

    async def update(self, name: str, change: ScheduleChange) -> Schedule:
        """Change what is said and leave the rest. Another `when` counts from now; anything else goes on as it was."""

        async def apply(old: Schedule, now: datetime) -> Schedule:
            return replaced(old, await self.check(name, changed_body(old, change), now))

        return await self._change(name, apply)

    async def pause(self, name: str) -> Schedule:
        """No tick becomes a job until it is resumed; pausing twice is fine."""
        return await self._pause(name, paused=True)

    async def resume(self, name: str) -> Schedule:
        """Go on; the ticks that came meanwhile are missed, and the misfire policy decides about them."""
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
        """Remove the schedule and its history; its jobs stay."""
        if self._queues is not None:
            await self.get(name)
        if not await self._store.drop_schedule(name):
            raise NotFound(f"there is no schedule {name!r}")
        self._engine.changes.publish()

    async def history(self, name: str, before: datetime | None, limit: int) -> Sequence[TickRecord]:
        """What became of its ticks, newest first."""
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
        """The next ticks of a schedule that need not exist."""
        return _preview(when_of(body), await self.now(), count, body.start_at, body.end_at)

    async def trigger(self, name: str) -> Job:
        """A job now, recorded as a tick of its own; the ticks to come stay as they are."""
        return await self._by_hand.trigger(name)

    async def backfill(self, name: str, from_at: datetime, to_at: datetime) -> Sequence[TickRecord]:
        """Give a job to each tick of the range that has neither job nor record, and tell which; earliest first."""
        return await self._by_hand.backfill(name, from_at, to_at)

    async def check(self, name: str, body: ScheduleBody, now: datetime) -> Schedule:
        """The schedule that the body describes, if its jobs could be made today."""
        schedule = new_schedule(name, body, now)
        limit = self._engine.settings.limits.inline_bytes
        if len(schedule.params) > limit:
            raise TooLarge(
                f"params: a schedule keeps at most {limit:,} bytes (limits.inline_bytes); "
                "let its job read the rest from elsewhere"
            )
        self._engine.catalog.require_types()
        allow_unknown = self._engine.settings.server.allow_unknown_types
        declared = (await self._engine.catalog.read()).type(body.type, allow_unknown=allow_unknown)
        self._engine.catalog.check(declared, schedule.params)
        await self._refuse_foreign(schedule)
        return schedule

    async def _refuse_foreign(self, schedule: Schedule) -> None:
        if self._queues is not None and not await self._is_own(schedule):
            raise Forbidden(
                f"the jobs of schedule {schedule.name!r} go to a queue that this API key is not for; "
                f"it is for {', '.join(sorted(self._queues))}"
            )

    async def _is_own(self, schedule: Schedule) -> bool:
        reading = await self._engine.catalog.read()
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
                return self._noted(stored)
        raise too_busy(name)

    def _noted(self, stored: Schedule) -> Schedule:
        self._engine.changes.publish()
        return stored

    async def now(self) -> datetime:
        """The shard's clock, in whole milliseconds, as it keeps them."""
        return whole_millis(await self._store.now())


def _preview(
    when: Every | Cron, after: datetime, count: int, start_at: datetime | None, end_at: datetime | None
) -> Sequence[datetime]:
    return ticks.preview(when, after, count, start_at=start_at, end_at=end_at)
