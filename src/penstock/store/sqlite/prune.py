"""Deletes ended jobs past their retention, with their tags and logs; and the records of old ticks."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import apsw

from penstock.model.ids import from_bytes
from penstock.model.job import Pruned, Retention
from penstock.model.lifecycle import State
from penstock.model.timing import millis
from penstock.store.rows import Row
from penstock.store.sqlite.reads import seqs_of
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_PRUNE = load("prune")
_PRUNE_ANCHORS = load("prune_anchors")
_PRUNE_TAGS = load("prune_tags")
_PRUNE_LOGS = load("prune_logs")
_PRUNE_COUNTS = load("prune_counts")
_PRUNE_TICKS = load("prune_ticks")

TICK_RECORDS_PER_JOB = 50
"""Records of ticks are small, and a schedule that mostly skips has far more of them than jobs."""


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
    for row in rows:
        tx.record_pruned(row[2], row[3], State(row[5]))
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
