"""Deletes ended jobs past their retention, with their keys, tags and logs; and the records of old ticks."""

from collections.abc import Iterator
from datetime import timedelta

from penstock.model.job import Pruned, Retention
from penstock.model.lifecycle import State
from penstock.model.timing import millis
from penstock.store.postgres.statements import execute, load, query
from penstock.store.postgres.ticks import prune_ticks
from penstock.store.postgres.transaction import PostgresTransaction, Session
from penstock.store.rows import Row

_PRUNE = load("prune")
_PRUNE_ANCHORS = load("prune_anchors")
_FOLD_COUNTS = load("fold_counts")

TICK_RECORDS_PER_JOB = 50
"""Records of ticks are small, and a schedule that mostly skips has far more of them than jobs."""


async def prune(tx: PostgresTransaction, keep: Retention, limit: int) -> Pruned:
    """At most `limit` jobs over all states, the longest ended first within each."""
    rows: list[Row] = []
    for state, kept in _retentions(keep):
        scope = {"state": state, "until": tx.now - millis(kept), "limit": limit - len(rows)}
        rows += await query(tx.connection, _PRUNE, scope)
    anchors = {"until": tx.now - millis(keep.longest), "limit": limit - len(rows)}
    rows += await query(tx.connection, _PRUNE_ANCHORS, anchors)
    await prune_ticks(tx, tx.now - millis(keep.failed), limit * TICK_RECORDS_PER_JOB)
    return Pruned(len(rows), tuple(job for job, owns_objects in rows if owns_objects))


async def fold_counts(session: Session) -> None:
    """Move changes of the counts into the counts, so that few are left to be summed up."""
    await execute(session.connection, _FOLD_COUNTS)


def _retentions(keep: Retention) -> Iterator[tuple[State, timedelta]]:
    yield State.SUCCEEDED, keep.succeeded
    for state in (State.FAILED, State.CANCELLED, State.EXPIRED):
        yield state, keep.failed
