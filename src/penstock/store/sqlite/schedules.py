"""Schedules: stored under their version, read by name, found when a decision is due; and their ticks."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import apsw
import msgspec
from msgspec.structs import replace

from penstock.model.clock import from_millis, to_millis
from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.lifecycle import Move
from penstock.model.schedule import Due, Every, Schedule, Ticked, TickMove, TickRecord, without_jobs
from penstock.model.submission import Misplaced, Submission
from penstock.store.rounds import in_rounds
from penstock.store.rows import Row, instant, misplaced, optional_millis, schedule_of
from penstock.store.sqlite.connection import FAULTS, refused
from penstock.store.sqlite.leases import yield_jobs
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.submit import insert
from penstock.store.sqlite.transaction import SqliteTransaction, optional_id

ACTIVE_MAX = 100
"""A schedule that allows overlap may have any number of active jobs; the oldest are enough for a decision."""

_CREATE = load("create_schedule")
_REPLACE = load("replace_schedule")
_BY_NAME = load("schedules_by_name")
_LIST = load("list_schedules")
_DROP, _DROP_TICKS = load("drop_schedule"), load("drop_ticks")
_DUE = load("due_schedules")
_NEXT_TICK = load("next_tick")

_ids = msgspec.json.Decoder(tuple[str, ...])


def put_schedule(
    tx: SqliteTransaction, schedule: Schedule, expected_version: int | None, ring: int | None
) -> Schedule | None:
    """The stored schedule; None when its version is not the expected one. MapChanged if the shard takes no new one."""
    scope = _scope_of(schedule)
    if expected_version is None:
        if not tx.admission.takes(ring):
            raise misplaced(schedule.name)
        rows = query(tx.connection, _CREATE, scope)
    else:
        rows = query(tx.connection, _REPLACE, scope | {"expected_version": expected_version})
    return _schedule_of(rows[0]) if rows else None


def drop_schedule(tx: SqliteTransaction, name: str) -> bool:
    """Delete a schedule with its history; False if there is none."""
    tx.connection.execute(_DROP, {"name": name})
    dropped = tx.connection.changes() > 0
    tx.connection.execute(_DROP_TICKS, {"name": name})
    return dropped


def get_schedules(connection: apsw.Connection, names: Sequence[str]) -> list[Schedule | None]:
    if not names:
        return []
    found = map(_schedule_of, query(connection, _BY_NAME, {"names": apsw.carray(tuple(names))}))
    by_name = {schedule.name: schedule for schedule in found}
    return [by_name.get(name) for name in names]


def list_schedules(connection: apsw.Connection, after: str | None, limit: int) -> list[Schedule]:
    """By name. No name is empty, so that all are after the empty one."""
    return [_schedule_of(row) for row in query(connection, _LIST, {"after": after or "", "limit": limit})]


def due_schedules(connection: apsw.Connection, before: datetime, limit: int) -> list[Due]:
    """Earliest first; each with at most ACTIVE_MAX of its active jobs, oldest first."""
    scope = {"before": ceil_millis(before), "limit": limit, "active_limit": ACTIVE_MAX}
    return [_due_of(row) for row in query(connection, _DUE, scope)]


def next_tick(connection: apsw.Connection) -> datetime | None:
    return instant(connection.execute(_NEXT_TICK).get)


def ceil_millis(at: datetime) -> int:
    """The first whole millisecond not before an instant: a stored time is before both or neither."""
    return to_millis(at + timedelta(microseconds=999))


def _scope_of(schedule: Schedule) -> "dict[str, apsw.Binding]":
    """The parameters of a schedule. A field that has a column is not in the JSON too."""
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
        paused=bool(paused),
        next_tick_at=instant(next_tick_at),
        pending_tick_at=instant(pending_tick_at),
        last_tick_at=instant(last_tick_at),
    )


def _due_of(row: Row) -> Due:
    schedule = _schedule_of(row)
    active = tuple(map(_id_of, _ids.decode(row[6])))
    return Due(schedule, active, _completion(schedule, row[7]))


def _completion(schedule: Schedule, completed_at: int | None) -> datetime | None:
    """When the last job ended; never before the last tick if the schedule waits for a completion.

    A job that was pruned, or a clock that was set back, would otherwise leave it waiting for ever.
    """
    if schedule.next_tick_at is not None or schedule.last_tick_at is None:
        return instant(completed_at)
    return max(schedule.last_tick_at, from_millis(completed_at or 0))


def _id_of(digits: str) -> JobId:
    return from_bytes(bytes.fromhex(digits))


_TICK = Bulk("tick")
_RECORD_TICKS = Bulk("record_ticks")
_TICKS = load("ticks")

FOREVER = (1 << 63) - 1
REFUSED = Ticked(applied=False)

Entry = tuple[TickMove, timedelta]

logger = logging.getLogger(__name__)


def tick(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """One answer each, in order; of two moves of one schedule the first is moved first."""
    return in_rounds(entries, lambda one: one[0].decision.name, partial(_tick, tx))


def ticks(connection: apsw.Connection, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
    """Newest first."""
    scope = {"name": name, "before": FOREVER if before is None else ceil_millis(before), "limit": limit}
    return [
        TickRecord(from_millis(tick_at), optional_id(job), skipped)
        for tick_at, job, skipped in query(connection, _TICKS, scope)
    ]


def _tick(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """Apply one round, in which each schedule is named once."""
    ticked = _apply_all(tx, [entry for entry in entries if not _early(entry[0], tx.at)])
    tx.record(event for one in ticked.values() for event in one.events)
    tx.record(event for one in ticked.values() for event in one.yielded)
    return [ticked.get(move.decision.name, REFUSED) for move, _ in entries]


def _early(move: TickMove, now: datetime) -> bool:
    """Whether one of its ticks is later than the shard's time."""
    instants = [record.at for record in move.records] + [verdict.at for verdict in move.decision.verdicts]
    return any(at > now for at in instants)


def _apply_all(tx: SqliteTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Apply all in a few statements; if one breaks an invariant of a table, each by itself, that one without jobs."""
    try:
        with tx.whole():
            return _apply(tx, entries)
    except FAULTS:
        return {name: ticked for entry in entries for name, ticked in _apply_alone(tx, entry).items()}


def _apply_alone(tx: SqliteTransaction, entry: Entry) -> dict[str, Ticked]:
    try:
        with tx.whole():
            return _apply(tx, [entry])
    except FAULTS as error:
        move, ticket_for = entry
        logger.error("a tick of schedule %s cannot be kept: %s", move.decision.name, error)
        # Without it, the schedule would be decided again at once, endlessly.
        return _apply_alone(tx, (without_jobs(move, str(refused(error))), ticket_for)) if move.jobs else {}


def _apply(tx: SqliteTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Apply the moves whose schedule is still as it was read."""
    names = {name for (name,) in _TICK.run(tx.connection, [_decided(move) for move, _ in entries])}
    advanced = [entry for entry in entries if entry[0].decision.name in names]
    recorded = {job for (job,) in _RECORD_TICKS.run(tx.connection, list(_records(advanced)))}
    inserted = _insert(tx, advanced, recorded)
    return {move.decision.name: _complete(tx, move, inserted) for move, _ in advanced}


def _decided(move: TickMove) -> Row:
    """The columns of `tick.sql`, in its order."""
    decision = move.decision
    return (
        decision.name,
        decision.version,
        optional_millis(decision.expected_tick_at),
        optional_millis(decision.expected_pending_at),
        optional_millis(decision.next_tick_at),
        optional_millis(decision.pending_tick_at),
        max((to_millis(record.at) for record in move.records), default=None),
        int(decision.by_hand),
    )


def _records(entries: Sequence[Entry]) -> Iterator[Row]:
    """The columns of `record_ticks.sql`, in its order."""
    for move, _ in entries:
        for record in move.records:
            job = None if record.job is None else to_bytes(record.job)
            yield move.decision.name, to_millis(record.at), job, record.skipped


def _insert(tx: SqliteTransaction, entries: Sequence[Entry], recorded: set[bytes | None]) -> dict[JobId, Submission]:
    """Insert the jobs whose tick was recorded just now: a tick that has its job gets no other."""
    jobs = [(new, span) for move, span in entries for new in move.jobs if to_bytes(new.id) in recorded]
    answers = insert(tx, jobs, Move.TICK) if jobs else []
    for answer in answers:
        if isinstance(answer, Misplaced):
            raise answer.refusal
    return {answer.job.id: answer for answer in answers if answer.event}


def _complete(tx: SqliteTransaction, move: TickMove, inserted: Mapping[JobId, Submission]) -> Ticked:
    answers = [inserted[new.id] for new in move.jobs if new.id in inserted]
    events = [answer.event for answer in answers if answer.event]
    yielded = yield_jobs(tx, move.decision.name, move.ousted) if move.ousted else []
    return Ticked(True, [answer.job for answer in answers], events, yielded)
