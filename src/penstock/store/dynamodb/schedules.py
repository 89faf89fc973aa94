"""Schedules: stored under their version, read by name, found when a decision is due; and the records of their ticks."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from penstock.model.clock import from_millis, to_millis
from penstock.model.ids import JobId
from penstock.model.schedule import Due, Every, Schedule, TickRecord
from penstock.store.dynamodb.conditions import ABSENT, ItemCondition, Part, Update, put_part, update_part
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.journal import ceil_millis
from penstock.store.dynamodb.keys import AFTER_ALL, millis_key, new_token
from penstock.store.dynamodb.schedule_items import (
    Activity,
    StoredSchedule,
    activity_of,
    check_instants_of,
    completion,
    schedule_attributes,
    stored_of,
    waits,
)
from penstock.store.dynamodb.schema import PLACE
from penstock.store.dynamodb.table import ALL, ConditionFailed, SortRange, TransactionRefused
from penstock.store.dynamodb.values import Item, ItemKey, key_of
from penstock.store.rows import misplaced

ACTIVE_MAX = 100
"""A schedule that allows overlap may have any number of active jobs; the oldest are enough for a decision."""


class DynamoSchedules:
    """The schedules of one shard."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._table = context.table
        self._prefix = context.prefix

    # -- writing

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        """The stored schedule; None when its version is not the expected one. MapChanged if it takes no new one."""
        check_instants_of(schedule)
        if expected_version is not None:
            return await self._replace(schedule, expected_version)
        if not (await self._context.admissions.read()).admission.takes(ring):
            raise misplaced(schedule.name)
        return await self._create(schedule)

    async def _create(self, schedule: Schedule) -> Schedule | None:
        token = new_token()
        last = None if schedule.last_tick_at is None else to_millis(schedule.last_tick_at)
        item = {
            **self.key(schedule.name)._asdict(),
            **schedule_attributes(self._prefix, schedule, token),
            "lt": last,
            "g": token,
        }
        try:
            await self._table.transact([put_part(item, ABSENT), *self.waiting_parts(schedule)], new_token())
        except TransactionRefused:
            found = await self.read([schedule.name])
            # The answer to an earlier sending of this very write may have been lost.
            return found[0].schedule if found and found[0].token == token else None
        return schedule

    async def _replace(self, schedule: Schedule, expected: int) -> Schedule | None:
        """The last tick is the ticks' own: one that was decided meanwhile is not forgotten."""
        token = new_token()
        changed = replace(schedule, version=expected + 1)
        sets = schedule_attributes(self._prefix, changed, token)
        update = Update(self.key(schedule.name), sets, condition=ItemCondition("v = :expected", expected=expected))
        with suppress(TransactionRefused):
            await self._table.transact([update_part(update), *self.waiting_parts(changed)], new_token())
        found = await self.read([schedule.name])
        same = found and found[0].schedule.version == expected + 1 and found[0].token == token
        return found[0].schedule if same else None

    async def drop_schedule(self, name: str) -> bool:
        """Its records are not found any more, and expire."""
        return await self._table.delete(self.key(name)) is not None

    def key(self, name: str) -> ItemKey:
        return ItemKey(f"{self._prefix}schedules", name)

    def waiting_parts(self, schedule: Schedule) -> list[Part]:
        """What a write of a schedule that waits for the end of a job has besides."""
        if not waits(schedule):
            return []
        return [put_part({"pk": self._waiting, "sk": schedule.name, "x": new_token()})]

    @property
    def _waiting(self) -> str:
        return f"{self._prefix}waiting"

    # -- reading

    async def read(self, names: Iterable[str]) -> list[StoredSchedule]:
        """Those that there are, as of now."""
        found = await self._table.batch_get(map(self.key, names))
        return [stored_of(item) for item in found.values()]

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        by_name = {one.schedule.name: one.schedule for one in await self.read(names)}
        return [by_name.get(name) for name in names]

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        """By name."""
        span = SortRange(after=after) if after else ALL
        found: list[Schedule] = []
        async for item in self._table.walk(f"{self._prefix}schedules", span, page=max(limit, 1)):
            if len(found) == limit:
                break
            found.append(stored_of(item).schedule)
        return found

    async def next_tick(self) -> datetime | None:
        """By the index: a change may show after about a second."""
        page = await self._table.query(f"{self._prefix}tick", index=PLACE, limit=1)
        return _tick_of(page.items[0]) if page.items else None

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        """Earliest first; each with at most ACTIVE_MAX of its active jobs, oldest first.

        The index and the items `waiting` only name schedules; what is due is told by the schedules and their jobs.
        """
        names = dict.fromkeys([*await self._find_ticking(before, limit), *(waiting := await self._find_waiting())])
        found = await self.read(names)
        await self._tidy(found, waiting)
        activities = await self._read_activities(found)
        by_name = {one.schedule.name: one.schedule for one in found}
        instants = {name: _due_at(one, activities[name], before) for name, one in by_name.items()}
        first = sorted((at, name) for name, at in instants.items() if at is not None)[:limit]
        return [_due_of(by_name[name], activities[name]) for _, name in first]

    async def _find_ticking(self, before: datetime, limit: int) -> list[str]:
        span = SortRange(most=millis_key(max(0, ceil_millis(before) - 1)) + AFTER_ALL)
        page = await self._table.query(f"{self._prefix}tick", span, index=PLACE, limit=limit)
        return [item["sk"] for item in page.items]

    async def _find_waiting(self) -> dict[str, Item]:
        return {item["sk"]: item async for item in self._table.walk(self._waiting)}

    async def _tidy(self, found: Sequence[StoredSchedule], waiting: dict[str, Item]) -> None:
        """Delete what says that a schedule waits, where it does not."""
        true = {one.schedule.name for one in found if one.waits}
        for name, item in waiting.items():
            if name not in true:
                # The guard: another write may have made it true since.
                with suppress(ConditionFailed):
                    await self._table.delete(key_of(item), ItemCondition("x = :token", token=item["x"]))

    async def _read_activities(self, found: Sequence[StoredSchedule]) -> dict[str, Activity]:
        """What the jobs of each schedule are doing, by its name, as of now."""
        jobs = [await self.jobs_of(one) for one in found]
        heads = await self._context.heads.read({job for some in jobs for job in some})
        return {one.schedule.name: activity_of(one, some, heads) for one, some in zip(found, jobs, strict=True)}

    async def jobs_of(self, stored: StoredSchedule) -> Sequence[JobId]:
        """Those that may not have ended, oldest first."""
        if stored.more_from is None:
            return stored.listed
        span = SortRange(least=millis_key(stored.more_from))
        records = [_record_of(item) async for item in self._table.walk(self.records(stored), span)]
        return list(dict.fromkeys([*stored.listed, *(one.job for one in records if one.job is not None)]))

    def records(self, stored: StoredSchedule) -> str:
        """The partition of a schedule's records."""
        return f"{self._prefix}ticks#{stored.schedule.name}#{stored.mark}"

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        """Newest first. What is past its retention is hidden until DynamoDB deletes it."""
        found: list[TickRecord] = []
        span = ALL if before is None else SortRange(most=millis_key(max(0, ceil_millis(before) - 1)))
        now = self._table.clock.now()
        for stored in await self.read([name]):
            async for item in self._table.walk(self.records(stored), span, forward=False, page=max(limit, 1)):
                if len(found) == limit or item["ttl"] * 1000 <= now:
                    break
                found.append(_record_of(item))
        return found


def _due_at(schedule: Schedule, activity: Activity, before: datetime) -> datetime | None:
    """Since when there is something to decide; None if there is nothing."""
    if schedule.paused:
        return None
    reasons = []
    if schedule.next_tick_at is not None and schedule.next_tick_at < before:
        reasons.append(schedule.next_tick_at)
    if schedule.pending_tick_at is not None and not activity.active:
        reasons.append(schedule.pending_tick_at)
    counts = isinstance(schedule.when, Every) and schedule.when.after_completion and schedule.next_tick_at is None
    over = schedule.end_at is not None and schedule.end_at <= before
    if counts and not over and not activity.active:
        reasons.append(schedule.last_tick_at or from_millis(0))
    return min(reasons, default=None)


def _due_of(schedule: Schedule, activity: Activity) -> Due:
    return Due(schedule, activity.active[:ACTIVE_MAX], completion(schedule, activity.completed))


def _tick_of(item: Item) -> datetime:
    return from_millis(int(item["gs"].partition("#")[0]))


def _record_of(item: Item) -> TickRecord:
    job = item.get("j")
    return TickRecord(from_millis(int(item["sk"])), None if job is None else JobId(job), item.get("r"))
