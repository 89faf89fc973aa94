"""Deletes ended jobs past their retention, with their tags and logs; and the records of old ticks."""

from collections.abc import Iterator
from datetime import timedelta

from penstock.model.ids import from_bytes
from penstock.model.job import Pruned, Retention
from penstock.model.lifecycle import State
from penstock.model.timing import millis
from penstock.store.rows import Row
from penstock.store.sqlite.reads import seqs_of
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import Transaction

_PRUNE = load("prune")
_PRUNE_TAGS = load("prune_tags")
_PRUNE_LOGS = load("prune_logs")
_PRUNE_COUNTS = load("prune_counts")
_PRUNE_TICKS = load("prune_ticks")

TICKS_FOR_A_JOB = 50
"""Records of ticks are small, and a schedule that mostly skips has far more of them than jobs."""


def prune(tx: Transaction, keep: Retention, limit: int) -> Pruned:
    """At most `limit` jobs over all states, the longest ended first within each."""
    rows: list[Row] = []
    for state, kept in _retentions(keep):
        rows += _pruned(tx, state, tx.now - millis(kept), limit - len(rows))
    _prune_ticks(tx, tx.now - millis(keep.failed), limit * TICKS_FOR_A_JOB)
    return Pruned(len(rows), tuple(from_bytes(row[1]) for row in rows if row[4]))


def _retentions(keep: Retention) -> Iterator[tuple[State, timedelta]]:
    yield State.SUCCEEDED, keep.succeeded
    for state in (State.FAILED, State.CANCELLED, State.EXPIRED):
        yield state, keep.failed


def _pruned(tx: Transaction, state: State, until: int, limit: int) -> list[Row]:
    scope = {"state": state, "until": until, "limit": limit}
    rows = query(tx.connection, _PRUNE, scope)
    for row in rows:
        tx.record_pruned(row[2], row[3], state)
    if rows:
        _forget(tx, rows)
    return rows


def _forget(tx: Transaction, rows: list[Row]) -> None:
    gone = {"seqs": seqs_of(row[0] for row in rows)}
    tx.connection.execute(_PRUNE_TAGS, gone)
    tx.connection.execute(_PRUNE_LOGS, gone)
    tx.connection.execute(_PRUNE_COUNTS)


def _prune_ticks(tx: Transaction, until: int, limit: int) -> None:
    """About `limit` of them, the oldest first."""
    tx.connection.execute(_PRUNE_TICKS, {"until": until, "limit": limit})
