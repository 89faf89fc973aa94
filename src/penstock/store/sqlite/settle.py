"""The settle move: an attempt's outcome, written only under the fence of the newest claim."""

from collections.abc import Sequence
from functools import partial

from penstock.model.ids import to_bytes
from penstock.model.job import Settled, Settlement
from penstock.model.lifecycle import Move, State
from penstock.model.timing import millis
from penstock.store.batching import in_rounds
from penstock.store.rows import Row, text_of
from penstock.store.sqlite.lease import losses_of
from penstock.store.sqlite.statements import Bulk
from penstock.store.sqlite.transaction import SqliteTransaction

_SETTLE = Bulk("settle")


def settle(tx: SqliteTransaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """One answer each, in order."""
    return in_rounds(settlements, lambda one: one.job, partial(_settle, tx))


def _settle(tx: SqliteTransaction, settlements: Sequence[Settlement]) -> list[Settled]:
    rows = [_row_of(one, tx.now) for one in settlements]
    jobs = {row[0]: one.job for row, one in zip(rows, settlements, strict=True)}
    moved = {
        row[0]: tx.event(jobs[row[0]], row, Move.SETTLE, State.RUNNING, ran=row[7])
        for row in _SETTLE.run(tx.connection, rows)
    }
    tx.record(moved.values())
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in moved])
    return [
        Settled(one.job, one.fence, moved.get(row[0]), losses.get(row[0]))
        for row, one in zip(rows, settlements, strict=True)
    ]


def _row_of(one: Settlement, now: int) -> Row:
    return (
        to_bytes(one.job),
        one.fence,
        one.state,
        now,
        None if one.retry_in is None else now + millis(one.retry_in),
        int(one.loss),
        one.reason,
        text_of(one.error),
        one.result,
        text_of(one.result_object),
        text_of(one.outputs),
        int(bool(one.result_object or one.outputs)),
    )
