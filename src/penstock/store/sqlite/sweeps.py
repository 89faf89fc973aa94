"""The sweeps of a shard: promote, dispatch, expire tickets, prune; and raising its epoch after a restore."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import apsw

from penstock.model.clock import millis
from penstock.model.fences import next_epoch
from penstock.model.ids import JobId, ShardId, from_bytes, to_bytes
from penstock.model.job import BacklogKey, Pruned, Retention, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.store.rows import Row
from penstock.store.sqlite.queries import seqs_of
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import SqliteTransaction

logger = logging.getLogger("penstock.store.sqlite")

_PROMOTE = load("promote")
_DISPATCH = load("dispatch")
_EXPIRE_TICKETS, _EXPIRE_OVERDUE_TICKETS = load("expire_tickets"), load("expire_overdue_tickets")
_EPOCH, _SET_EPOCH, _FENCE_OFF = load("epoch"), load("set_epoch"), load("fence_off")


def promote(tx: SqliteTransaction, limit: int) -> list[Event]:
    """Promote the jobs that were due first."""
    rows = query(tx.connection, _PROMOTE, {"now": tx.now, "limit": limit})
    rows.sort(key=lambda row: row[8:])
    events = [tx.event(from_bytes(row[0]), row, Move.DISPATCH, State.SCHEDULED) for row in rows]
    tx.record(events)
    return events


def dispatch(
    tx: SqliteTransaction, shard: ShardId, room: Mapping[BacklogKey, int], ticket_for: timedelta
) -> list[Ticket]:
    """Within each queue and type: highest priority first, then oldest first."""
    until = tx.now + millis(ticket_for)
    return [
        Ticket(shard, from_bytes(raw_id), *key, priority)
        for key, free in room.items()
        for raw_id, priority, _ in _dispatch_one(tx, key, free, until)
    ]


def _dispatch_one(tx: SqliteTransaction, key: BacklogKey, room: int, until: int) -> list[Row]:
    if room <= 0:
        return []
    scope = {"queue": key.queue, "type": key.type, "room": room, "ticket_until": until, "now": tx.now}
    return sorted(query(tx.connection, _DISPATCH, scope), key=lambda row: (-row[1], row[2]))


def expire_tickets(tx: SqliteTransaction, jobs: Sequence[JobId] | None) -> int:
    """Expire tickets; how many."""
    if jobs is None:
        tx.connection.execute(_EXPIRE_TICKETS)
    elif jobs:
        ids = apsw.carray(tuple(map(to_bytes, jobs)))
        tx.connection.execute(_EXPIRE_OVERDUE_TICKETS, {"ids": ids, "now": tx.now})
    return tx.connection.changes() if jobs is None or jobs else 0


_PRUNE = load("prune")
_PRUNE_ANCHORS = load("prune_anchors")
_PRUNE_TAGS = load("prune_tags")
_PRUNE_LOGS = load("prune_logs")
_PRUNE_COUNTS = load("prune_counts")
_PRUNE_TICKS = load("prune_ticks")

TICK_RECORDS_PER_JOB = 50
"""Tick records are small, and a schedule that mostly skips has far more of them than jobs."""


def prune(tx: SqliteTransaction, keep: Retention, limit: int) -> Pruned:
    """At most `limit` jobs over all states, the longest ended first within each."""
    rows: list[Row] = []
    for state, kept in _retentions(keep):
        scope = {"state": state, "until": tx.now - millis(kept), "limit": limit - len(rows)}
        rows += _prune_jobs(tx, _PRUNE, scope)
    anchors = {"until": tx.now - millis(keep.longest), "limit": limit - len(rows)}
    rows += _prune_jobs(tx, _PRUNE_ANCHORS, anchors)
    _prune_ticks(tx, tx.now - millis(keep.failed), limit * TICK_RECORDS_PER_JOB)
    return Pruned(len(rows), tuple(from_bytes(row[1]) for row in rows if row[4]))


def _retentions(keep: Retention) -> Iterator[tuple[State, timedelta]]:
    yield State.SUCCEEDED, keep.succeeded
    for state in (State.FAILED, State.CANCELLED, State.EXPIRED):
        yield state, keep.failed


def _prune_jobs(tx: SqliteTransaction, text: str, scope: Mapping[str, "apsw.Binding"]) -> list[Row]:
    rows = query(tx.connection, text, scope)
    tx.record_pruned(Counter((row[2], row[3], State(row[5])) for row in rows))
    if rows:
        _forget(tx, rows)
    return rows


def _forget(tx: SqliteTransaction, rows: list[Row]) -> None:
    gone = {"seqs": seqs_of(row[0] for row in rows)}
    tx.connection.execute(_PRUNE_TAGS, gone)
    tx.connection.execute(_PRUNE_LOGS, gone)
    tx.connection.execute(_PRUNE_COUNTS)


def _prune_ticks(tx: SqliteTransaction, until: int, limit: int) -> None:
    """About `limit` of them, the oldest first."""
    tx.connection.execute(_PRUNE_TICKS, {"until": until, "limit": limit})


def raise_epoch(tx: SqliteTransaction) -> None:
    """Raise the epoch after a restore and end all leases: no fence from before counts any more.

    An operator asks for it. The file cannot tell: the files beside it may have been restored with it, and a copy of a
    running server's file has everything that was written by then.
    """
    ((before,),) = query(tx.connection, _EPOCH)
    epoch = next_epoch(before, tx.at)
    tx.connection.execute(_SET_EPOCH, {"epoch": epoch})
    tx.connection.execute(_FENCE_OFF, {"epoch": epoch, "now": tx.now})
    running = tx.connection.changes()
    expire_tickets(tx, None)
    logger.warning("the shard's epoch is %d now, and %d running jobs start again", epoch, running)
