"""The tick move: a schedule advanced, its jobs inserted and its ticks recorded, in one write or not at all."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import apsw

from penstock.model.ids import JobId, to_bytes
from penstock.model.lifecycle import Move
from penstock.model.schedule import Ticked, TickMove, TickRecord, without_jobs
from penstock.model.submission import Misplaced, Submission
from penstock.model.timing import from_millis, to_millis
from penstock.store.batching import in_rounds
from penstock.store.rows import Row, optional_millis
from penstock.store.sqlite.cancel import yield_jobs
from penstock.store.sqlite.connection import FAULTS, refused
from penstock.store.sqlite.rows import optional_id
from penstock.store.sqlite.schedules import ceil_millis
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.submit import insert
from penstock.store.sqlite.transaction import SqliteTransaction

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
    """In a round each schedule is named once."""
    ticked = _apply_all(tx, [entry for entry in entries if not _early(entry[0], tx.at)])
    tx.record(event for one in ticked.values() for event in (*one.events, *one.yielded))
    return [ticked.get(move.decision.name, REFUSED) for move, _ in entries]


def _early(move: TickMove, now: datetime) -> bool:
    """Whether one of its ticks has not come yet, by the shard's clock."""
    instants = [record.at for record in move.records] + [verdict.at for verdict in move.decision.verdicts]
    return any(at > now for at in instants)


def _apply_all(tx: SqliteTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """All in a few statements; if one breaks an invariant of the tables, each by itself, that one without its jobs."""
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
        # Left as it is, the schedule would be decided again at once, and again.
        return _apply_alone(tx, (without_jobs(move, str(refused(error))), ticket_for)) if move.jobs else {}


def _apply(tx: SqliteTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Those whose schedule is still as it was read."""
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
    """Only jobs whose tick was recorded just now: a tick that has its job gets no other."""
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
