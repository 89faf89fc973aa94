"""The journal: its entries are numbered and counted once they are visible, read in order, folded and pruned."""

from datetime import datetime, timedelta

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.job import Count
from penstock.model.journal import (
    FOLDS,
    NEWEST_SPAN,
    Entry,
    EventRetention,
    History,
    HistoryFilter,
    HistoryRow,
    JournalPage,
    SpanFold,
)
from penstock.model.lifecycle import Move, State
from penstock.store.postgres.arrays import bigints
from penstock.store.postgres.schedules import ceil_millis
from penstock.store.postgres.statements import Connection, PostgresTransaction, load, query
from penstock.store.rows import Row

NUMBERED_AT_ONCE = 1_000
"""Entries numbered in one transaction, so that none is long."""

ROUNDS = 20
"""Such transactions in one call, which has a deadline; the next call goes on."""

_SPANS = (millis(NEWEST_SPAN), *(millis(fold.coarse) for fold in FOLDS))

_FIND_FRESH = load("find_fresh")
_LOCK_JOURNAL = load("lock_journal")
_NUMBER_ENTRIES = load("number_entries")
_READ_JOURNAL = load("read_journal")
_FIND_NUMBER = load("find_number")
_READ_HISTORY = load("read_history")
_COUNTS_NUMBERED = load("counts_numbered")
_PRUNE_ENTRIES = load("prune_entries")
_PRUNE_DELIVERIES = load("prune_deliveries")
_PRUNE_HISTORY = load("prune_history")
_FOLD_HISTORY = load("fold_history")


async def number_entries(connection: Connection) -> int:
    """Number all entries that are visible; returns at once while another process does."""
    ((head, fresh),) = await query(connection, _FIND_FRESH)
    for _ in range(ROUNDS if fresh else 0):
        numbered = await _number_some(connection)
        if numbered is None:
            break
        head, entries = numbered
        if entries < NUMBERED_AT_ONCE:
            break
    return int(head)


async def _number_some(connection: Connection) -> Row | None:
    """The greatest number and how many entries were taken; None while another process has the lock."""
    async with connection.transaction():
        for head, latest_at in await query(connection, _LOCK_JOURNAL):
            scope = {"head": head, "latest_at": latest_at, "limit": NUMBERED_AT_ONCE}
            (numbered,) = await query(connection, _NUMBER_ENTRIES, scope)
            return numbered
    return None


async def read_journal(connection: Connection, after: int, limit: int) -> JournalPage:
    rows = await query(connection, _READ_JOURNAL, {"after": after, "limit": max(1, limit)})
    oldest, head, *_ = rows[0]
    return JournalPage([_entry_of(row) for row in rows if row[2] is not None], oldest, head)


def _entry_of(row: Row) -> Entry:
    _, _, number, at, move, type_name, queue, before, after, ids, versions, attempts, reasons = row
    return Entry(
        number=number,
        at=from_millis(at),
        move=Move(move),
        type=type_name,
        queue=queue,
        before=_state_of(before),
        after=State(after),
        jobs=ids,
        versions=[1] * len(ids) if versions is None else versions,
        attempts=[0] * len(ids) if attempts is None else attempts,
        reasons=() if reasons is None else reasons,
    )


async def find_number(connection: Connection, at: datetime) -> int:
    ((number,),) = await query(connection, _FIND_NUMBER, {"at": ceil_millis(at)})
    return int(number)


async def read_history(connection: Connection, where: HistoryFilter) -> History:
    """Inside a snapshot: the counts are those after the last move of the rows."""
    only = {"queue": where.queue, "type": where.type}
    rows = await query(connection, _READ_HISTORY, only | {"since": to_millis(where.since), "spans": bigints(_SPANS)})
    counts = await query(connection, _COUNTS_NUMBERED, only)
    return History(
        [_history_of(row) for row in rows],
        [Count(queue, type_name, State(state), jobs) for queue, type_name, state, jobs in counts],
    )


async def prune_journal(tx: PostgresTransaction, keep: EventRetention, limit: int) -> int:
    """The entries come first: their statement locks the head, so that nothing is numbered or folded meanwhile."""
    until = {"until": tx.now - millis(keep.events), "limit": limit}
    gone = await _count(tx, _PRUNE_ENTRIES, until)
    gone += await _count(tx, _PRUNE_DELIVERIES, until)
    for fold in FOLDS:
        gone += await _fold(tx, fold, limit)
    for span in _SPANS:
        gone += await _count(tx, _PRUNE_HISTORY, {"until": tx.now - millis(keep.history), "span": span, "limit": limit})
    return gone


async def _fold(tx: PostgresTransaction, fold: SpanFold, limit: int) -> int:
    """Fold spans that end before the age, from the oldest on; how many rows became part of others."""
    until = tx.now - millis(fold.age)
    longer = millis(fold.coarse)
    scope = {"span": millis(fold.fine), "longer": longer, "before": until - until % longer, "limit": limit}
    return await _count(tx, _FOLD_HISTORY, scope)


async def _count(tx: PostgresTransaction, text: bytes, scope: dict[str, int]) -> int:
    ((rows,),) = await query(tx.connection, text, scope)
    return int(rows)


def _history_of(row: Row) -> HistoryRow:
    at, span, queue, type_name, move, before, after, bucket, jobs, spent = row
    return HistoryRow(
        at=from_millis(at),
        span=timedelta(milliseconds=span),
        queue=queue,
        type=type_name,
        move=move,
        before=_state_of(before),
        after=_state_of(after),
        bucket=bucket,
        jobs=jobs,
        millis=spent,
    )


def _state_of(text: str | None) -> State | None:
    return None if text is None else State(text)
