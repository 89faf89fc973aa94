"""Schedules: kept under their version, read by name, found when they have something to decide."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from penstock.model.schedule import Due, Every, Schedule
from penstock.model.timing import from_millis, to_millis
from penstock.store.admission import misplaced
from penstock.store.postgres.admission import read_admission
from penstock.store.postgres.arrays import texts
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.transaction import PostgresTransaction
from penstock.store.rows import Row, instant, optional_millis, schedule_of

ACTIVE_MAX = 100
"""A schedule that allows overlap may have any number of active jobs; its oldest are enough to decide by."""

_CREATE = load("create_schedule")
_REPLACE = load("replace_schedule")
_BY_NAME = load("schedules_by_name")
_LIST = load("list_schedules")
_DROP, _DROP_TICKS = load("drop_schedule"), load("drop_ticks")
_DUE = load("due_schedules")
_NEXT_TICK = load("next_tick")


async def put_schedule(
    tx: PostgresTransaction, schedule: Schedule, expected_version: int | None, ring: int | None
) -> Schedule | None:
    """What is stored; None when the expectation failed. MapChanged when a new one is not taken."""
    scope = _scope_of(schedule)
    if expected_version is None:
        rows = await query(tx.connection, _CREATE, scope | {"ring": ring})
        if not rows and not (await read_admission(tx)).takes(ring):
            raise misplaced(schedule.name)
    else:
        rows = await query(tx.connection, _REPLACE, scope | {"expected_version": expected_version})
    return _schedule_of(rows[0]) if rows else None


async def drop_schedule(tx: PostgresTransaction, name: str) -> bool:
    """With its history; False if there is none."""
    dropped = await execute(tx.connection, _DROP, {"name": name})
    await execute(tx.connection, _DROP_TICKS, {"name": name})
    return dropped > 0


async def get_schedules(connection: Connection, names: Sequence[str]) -> list[Schedule | None]:
    if not names:
        return []
    found = map(_schedule_of, await query(connection, _BY_NAME, {"names": texts(names)}))
    by_name = {schedule.name: schedule for schedule in found}
    return [by_name.get(name) for name in names]


async def list_schedules(connection: Connection, after: str | None, limit: int) -> list[Schedule]:
    """By name. No schedule's name is empty, so that all come after nothing."""
    return [_schedule_of(row) for row in await query(connection, _LIST, {"after": after or "", "limit": limit})]


async def due_schedules(connection: Connection, before: datetime, limit: int) -> list[Due]:
    """Earliest first; each with at most ACTIVE_MAX of its active jobs, oldest first."""
    scope = {"before": ceil_millis(before), "limit": limit, "active_limit": ACTIVE_MAX}
    return [_due_of(row) for row in await query(connection, _DUE, scope)]


async def next_tick(connection: Connection) -> datetime | None:
    ((at,),) = await query(connection, _NEXT_TICK)
    return instant(at)


def ceil_millis(at: datetime) -> int:
    """The first whole millisecond not before an instant: what is kept is before the one just if before the other."""
    return to_millis(at + timedelta(microseconds=999))


def _scope_of(schedule: Schedule) -> dict[str, object]:
    """What has a column of its own stands only there."""
    intention = replace(schedule, next_tick_at=None, pending_tick_at=None, last_tick_at=None)
    return {
        "name": schedule.name,
        "version": schedule.version,
        "paused": schedule.paused,
        "after_completion": isinstance(schedule.when, Every) and schedule.when.after_completion,
        "end_at": optional_millis(schedule.end_at),
        "next_tick_at": optional_millis(schedule.next_tick_at),
        "pending_tick_at": optional_millis(schedule.pending_tick_at),
        "last_tick_at": optional_millis(schedule.last_tick_at),
        "intention": msgspec.json.encode(intention).decode(),
    }


def _schedule_of(row: Row) -> Schedule:
    """A schedule from the columns that every statement here gives first."""
    version, paused, next_tick_at, pending_tick_at, last_tick_at, intention, *_ = row
    return replace(
        schedule_of(intention),
        version=version,
        paused=paused,
        next_tick_at=instant(next_tick_at),
        pending_tick_at=instant(pending_tick_at),
        last_tick_at=instant(last_tick_at),
    )


def _due_of(row: Row) -> Due:
    schedule = _schedule_of(row)
    active = tuple(row[6])
    return Due(schedule, active, _completion(schedule, row[7]))


def _completion(schedule: Schedule, completed_at: int | None) -> datetime | None:
    """When the last job ended; never before the last tick if that is what the schedule waits for.

    A job that was pruned, or a clock that was set back, would otherwise leave it waiting for ever.
    """
    if schedule.next_tick_at is not None or schedule.last_tick_at is None:
        return instant(completed_at)
    return max(schedule.last_tick_at, from_millis(completed_at or 0))
