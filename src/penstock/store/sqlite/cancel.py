"""The ends of a job that no owner asked for: cancelled by its client, expired by its deadline."""

from collections.abc import Sequence

import apsw

from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import Cancellation
from penstock.model.lifecycle import Event, Move, State
from penstock.store.sqlite.reads import jobs_by_id, seqs_of
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_CANCEL = load("cancel")
_EXPIRABLE = load("expirable")
_EXPIRE = load("expire")


def cancel(tx: SqliteTransaction, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
    """One answer each, in order; of a job named twice the first answer has the event."""
    before = jobs_by_id(tx.connection, jobs)
    moved = _cancelled(tx, {job: found.state for job, found in before.items()}, force=force)
    after = jobs_by_id(tx.connection, list(moved))
    tx.record(moved.values())
    return [Cancellation(after.get(job) or before.get(job), moved.pop(job, None)) for job in jobs]


def yield_jobs(tx: SqliteTransaction, schedule: str, jobs: Sequence[JobId]) -> list[Event]:
    """Cancel those of the jobs that are the schedule's own, to make room. The caller records the events."""
    before = jobs_by_id(tx.connection, jobs)
    own = {job: found.state for job, found in before.items() if found.schedule == schedule}
    return list(_cancelled(tx, own, force=False).values())


def _cancelled(tx: SqliteTransaction, before: dict[JobId, State], *, force: bool) -> dict[JobId, Event]:
    if not before:
        return {}
    scope = {"ids": apsw.carray(tuple(map(to_bytes, before))), "force": force, "now": tx.now}
    states = {to_bytes(job): state for job, state in before.items()}
    events = [
        tx.event(from_bytes(row[0]), row, Move.CANCEL, states[row[0]]) for row in query(tx.connection, _CANCEL, scope)
    ]
    return {event.job: event for event in events}


def expire(tx: SqliteTransaction, limit: int) -> list[Event]:
    """Those that expired first."""
    before: dict[int, str] = dict(query(tx.connection, _EXPIRABLE, {"now": tx.now, "limit": limit}))
    if not before:
        return []
    scope = {"seqs": seqs_of(before), "now": tx.now}
    events = [
        tx.event(from_bytes(row[0]), row, Move.EXPIRE, State(before[row[7]]))
        for row in query(tx.connection, _EXPIRE, scope)
    ]
    tx.record(events)
    return events
