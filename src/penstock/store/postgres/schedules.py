"""Schedules and their ticks: stored under a version, read by name, found when they are due."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from penstock.model.clock import from_millis, to_millis
from penstock.model.ids import JobId
from penstock.model.lifecycle import Move
from penstock.model.schedule import Due, Every, Schedule, Ticked, TickMove, TickRecord, without_jobs
from penstock.model.submission import Misplaced, Submission
from penstock.store.postgres.arrays import bigints, booleans, optional_uuids, texts
from penstock.store.postgres.connection import FAULTS, refused
from penstock.store.postgres.leases import yield_jobs
from penstock.store.postgres.registry import read_admission
from penstock.store.postgres.statements import Connection, PostgresTransaction, execute, load, query
from penstock.store.postgres.submit import insert
from penstock.store.rounds import run_rounds
from penstock.store.rows import Row, instant, misplaced, optional_millis, schedule_of

ACTIVE_MAX = 100
"""A schedule that allows overlap may have any number of active jobs; the oldest suffice for a decision."""

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
    """Ordered by name. No name is empty, so an empty cursor precedes all of them."""
    return [_schedule_of(row) for row in await query(connection, _LIST, {"after": after or "", "limit": limit})]


async def due_schedules(connection: Connection, before: datetime, limit: int) -> list[Due]:
    """Earliest first; each with at most ACTIVE_MAX of its active jobs, oldest first."""
    scope = {"before": ceil_millis(before), "limit": limit, "active_limit": ACTIVE_MAX}
    return [_due_of(row) for row in await query(connection, _DUE, scope)]


async def next_tick(connection: Connection) -> datetime | None:
    ((at,),) = await query(connection, _NEXT_TICK)
    return instant(at)


def ceil_millis(at: datetime) -> int:
    """The instant rounded up to a millisecond, so that comparisons with stored milliseconds stay exact."""
    return to_millis(at + timedelta(microseconds=999))


def _scope_of(schedule: Schedule) -> dict[str, object]:
    """The parameters of a schedule's row; what has a column of its own is left out of the JSON."""
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
    """The schedule of a row whose first columns are those that every statement here selects."""
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


_TICK = load("tick")
_RECORD_TICKS = load("record_ticks")
_TICKS = load("ticks")
_PRUNE_TICKS = load("prune_ticks")

FOREVER = (1 << 63) - 1
REFUSED = Ticked(applied=False)

Entry = tuple[TickMove, timedelta]

logger = logging.getLogger(__name__)


async def tick(tx: PostgresTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """One answer each, in order; of two moves of one schedule the first is moved first."""
    return await run_rounds(entries, lambda one: one[0].decision.name, partial(_tick, tx))


async def ticks(connection: Connection, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
    """Newest first."""
    scope = {"name": name, "before": FOREVER if before is None else ceil_millis(before), "limit": limit}
    return [
        TickRecord(from_millis(tick_at), job, skipped)
        for tick_at, job, skipped in await query(connection, _TICKS, scope)
    ]


async def prune_ticks(tx: PostgresTransaction, until: int, limit: int) -> None:
    """At most `limit` records of ticks up to that instant, the oldest first."""
    await execute(tx.connection, _PRUNE_TICKS, {"until": until, "limit": limit})


async def _tick(tx: PostgresTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """Tick schedules, each named at most once."""
    ticked = await _apply_all(tx, [entry for entry in entries if not _early(entry[0], tx.at)])
    return [ticked.get(move.decision.name, REFUSED) for move, _ in entries]


def _early(move: TickMove, now: datetime) -> bool:
    """Whether one of the ticks is in the future by the shard's clock."""
    instants = [record.at for record in move.records] + [verdict.at for verdict in move.decision.verdicts]
    return any(at > now for at in instants)


async def _apply_all(tx: PostgresTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Apply all in a few statements; if a constraint is violated, one by one, the one at fault without its jobs."""
    if not entries:
        return {}
    try:
        async with tx.whole():
            return await _apply(tx, entries)
    except FAULTS:
        # Ordered by name, as in the statement for all: two batches must not deadlock.
        by_name = sorted(entries, key=lambda entry: entry[0].decision.name)
        return {name: ticked for entry in by_name for name, ticked in (await _apply_alone(tx, entry)).items()}


async def _apply_alone(tx: PostgresTransaction, entry: Entry) -> dict[str, Ticked]:
    try:
        async with tx.whole():
            return await _apply(tx, [entry])
    except FAULTS as error:
        move, ticket_for = entry
        logger.error("a tick of schedule %s cannot be kept: %s", move.decision.name, error)
        # Without this the schedule would be due again at once, in an endless loop.
        return await _apply_alone(tx, (without_jobs(move, str(refused(error))), ticket_for)) if move.jobs else {}


async def _apply(tx: PostgresTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Apply the moves whose schedule has not changed since it was read."""
    names = {name for (name,) in await query(tx.connection, _TICK, _decided([move for move, _ in entries]))}
    advanced = [entry for entry in entries if entry[0].decision.name in names]
    recorded = await _record(tx, [move for move, _ in advanced])
    inserted = await _insert(tx, advanced, recorded)
    return {move.decision.name: await _complete(tx, move, inserted) for move, _ in advanced}


def _decided(moves: Sequence[TickMove]) -> dict[str, object]:
    decisions = [move.decision for move in moves]
    return {
        "names": texts([one.name for one in decisions]),
        "versions": bigints([one.version for one in decisions]),
        "expected_ticks": bigints([optional_millis(one.expected_tick_at) for one in decisions]),
        "expected_pending": bigints([optional_millis(one.expected_pending_at) for one in decisions]),
        "next_ticks": bigints([optional_millis(one.next_tick_at) for one in decisions]),
        "pending_ticks": bigints([optional_millis(one.pending_tick_at) for one in decisions]),
        "last_ticks": bigints([max((to_millis(record.at) for record in move.records), default=None) for move in moves]),
        "by_hand": booleans([one.by_hand for one in decisions]),
    }


async def _record(tx: PostgresTransaction, moves: Sequence[TickMove]) -> set[JobId]:
    """Record the ticks; the jobs of those that had no record yet."""
    records = list(_records(moves))
    if not records:
        return set()
    schedules, instants, jobs, skips = zip(*records, strict=True)
    scope = {
        "schedules": texts(schedules),
        "ticks": bigints(instants),
        "jobs": optional_uuids(jobs),
        "skips": texts(skips),
    }
    return {job for (job,) in await query(tx.connection, _RECORD_TICKS, scope) if job is not None}


def _records(moves: Sequence[TickMove]) -> Iterator[Row]:
    for move in moves:
        for record in move.records:
            yield move.decision.name, to_millis(record.at), record.job, record.skipped


async def _insert(tx: PostgresTransaction, entries: Sequence[Entry], recorded: set[JobId]) -> dict[JobId, Submission]:
    """Insert only the jobs whose tick was recorded just now: a tick never gets a second job."""
    jobs = [(new, span) for move, span in entries for new in move.jobs if new.id in recorded]
    answers = await insert(tx, jobs, Move.TICK) if jobs else []
    for answer in answers:
        if isinstance(answer, Misplaced):
            raise answer.refusal
    return {answer.job.id: answer for answer in answers if answer.event}


async def _complete(tx: PostgresTransaction, move: TickMove, inserted: Mapping[JobId, Submission]) -> Ticked:
    answers = [inserted[new.id] for new in move.jobs if new.id in inserted]
    events = [answer.event for answer in answers if answer.event]
    yielded = await yield_jobs(tx, move.decision.name, move.ousted) if move.ousted else []
    return Ticked(True, [answer.job for answer in answers], events, yielded)
