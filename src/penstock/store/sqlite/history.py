"""The history: entries of the journal summed by spans of time, coarser as they age; and the counts they lead to."""

from datetime import timedelta
from functools import partial

import apsw

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.job import Count
from penstock.model.journal import FOLDS, NEWEST_SPAN, EventRetention, History, HistoryFilter, HistoryRow
from penstock.model.lifecycle import State
from penstock.store.rows import Row
from penstock.store.sqlite.connection import Readers
from penstock.store.sqlite.entries import tally
from penstock.store.sqlite.journal import prune_entries, read_bounds
from penstock.store.sqlite.queries import counts
from penstock.store.sqlite.relays import prune_deliveries
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import ShardClock, SqliteTransaction
from penstock.store.sqlite.writer import Writer

FOLD_INTERVAL = timedelta(seconds=1)
FOLD_ENTRIES = 2_000
NO_BUCKET = -1

_SPAN = millis(NEWEST_SPAN)
_SPANS = (_SPAN, *(millis(fold.coarse) for fold in FOLDS))
_UNFOLDED = load("unfolded")
_SET_FOLDED = load("set_folded")
_ADD = Bulk("add_history")
_READ = load("read_history")
_COARSEN, _DROP, _UNTIL = load("coarsen_history"), load("drop_history"), load("history_until")

Key = tuple[int, str, str, str, str, str, int]
"""The beginning of a span, queue, type, move, before, after and bucket, as columns."""

Sums = dict[Key, tuple[int, int]]
"""Jobs and milliseconds."""


class HistoryFolder:
    """Adds new entries to the history, at most once in `FOLD_INTERVAL`: reading them needs no fold."""

    def __init__(self, readers: Readers, writer: Writer, clock: ShardClock) -> None:
        self._readers = readers
        self._writer = writer
        self._clock = clock
        self._due_at = clock.now()

    async def fold_when_due(self) -> int:
        """The greatest number of the journal."""
        head, _, folded = await self._readers.read(read_bounds)
        now = self._clock.now()
        if folded < head and now >= self._due_at:
            self._due_at = now + FOLD_INTERVAL
            await self.fold(folded)
        return head

    async def fold(self, folded: int) -> None:
        """Add all entries after a number. If another call has done so meanwhile, it goes on from there."""
        full = True
        while full:
            head, sums, full = await self._readers.read(partial(sum_entries, after=folded, limit=FOLD_ENTRIES))
            if head > folded:
                folded = await self._writer.run(partial(add_history, folded=folded, head=head, sums=sums))


def sum_entries(connection: apsw.Connection, after: int, limit: int) -> tuple[int, Sums, bool]:
    """The last of some entries, their sums, and whether there may be more."""
    rows = query(connection, _UNFOLDED, {"after": after, "limit": limit})
    sums: Sums = {}
    for row in rows:
        _add_entry(sums, row)
    return rows[-1][0] if rows else after, sums, len(rows) == limit


def _add_entry(sums: Sums, row: Row) -> None:
    _, at, move, queue, type_name, before, after, jobs, packed = row
    line = (at - at % _SPAN, queue, type_name, move, before or "", after or "")
    if packed is None:
        _add(sums, (*line, NO_BUCKET), jobs, 0)
    for span, alike in tally(packed, jobs).items():
        _add(sums, (*line, span.bit_length()), alike, span * alike)


def _add(sums: Sums, key: Key, jobs: int, spent: int) -> None:
    known_jobs, known_spent = sums.get(key, (0, 0))
    sums[key] = known_jobs + jobs, known_spent + spent


def add_history(tx: SqliteTransaction, folded: int, head: int, sums: Sums) -> int:
    """Add the sums of the entries from `folded` to `head`, unless they were added meanwhile; the last that is added."""
    rows = query(tx.connection, _SET_FOLDED, {"folded": folded, "head": head})
    if not rows:
        return read_bounds(tx.connection).folded
    _ADD.execute(tx.connection, [(_SPAN, *key, *sums[key]) for key in sums])
    return head


def read_history(connection: apsw.Connection, where: HistoryFilter) -> History:
    """All in one snapshot: what is in the history, the entries that are not yet, and the counts after them."""
    scope = {"since": to_millis(where.since), "queue": where.queue, "type": where.type}
    rows = [_row_of(row) for row in query(connection, _READ, scope)]
    _, sums, _ = sum_entries(connection, read_bounds(connection).folded, -1)
    fresh = [_row_of((_SPAN, *key, *spent)) for key, spent in sums.items()]
    rows += [row for row in fresh if _wanted(where, row.queue, row.type) and row.at + row.span > where.since]
    return History(sorted(rows, key=lambda row: row.at), _counts(connection, where))


def _counts(connection: apsw.Connection, where: HistoryFilter) -> list[Count]:
    return [count for count in counts(connection) if _wanted(where, count.queue, count.type)]


def _wanted(where: HistoryFilter, queue: str, type_name: str) -> bool:
    return where.queue in (None, queue) and where.type in (None, type_name)


def _row_of(row: Row) -> HistoryRow:
    span, at, queue, type_name, move, before, after, bucket, jobs, spent = row
    return HistoryRow(
        at=from_millis(at),
        span=timedelta(milliseconds=span),
        queue=queue,
        type=type_name,
        move=move,
        before=State(before) if before else None,
        after=State(after) if after else None,
        bucket=None if bucket == NO_BUCKET else bucket,
        jobs=jobs,
        millis=spent,
    )


def prune_all(tx: SqliteTransaction, keep: EventRetention, limit: int) -> int:
    """Delete what is past its retention: entries, delivery records, history; how many."""
    until = tx.now - millis(keep.events)
    gone = prune_entries(tx, until, limit) + prune_deliveries(tx, until, limit)
    return gone + prune_history(tx, keep.history, limit)


def prune_history(tx: SqliteTransaction, keep: timedelta, limit: int) -> int:
    """Make old spans coarser and delete those past their retention, about `limit` rows of each kind; how many went."""
    gone = 0
    for fold in FOLDS:
        until = tx.now - millis(fold.age)
        gone += _remove(tx, millis(fold.fine), millis(fold.coarse), until, limit, keep=True)
    for span in _SPANS:
        gone += _remove(tx, span, span, tx.now - millis(keep), limit, keep=False)
    return gone


def _remove(tx: SqliteTransaction, fine: int, coarse: int, until: int, limit: int, *, keep: bool) -> int:
    """Remove spans before an instant, from the oldest on, only together with all in the same coarse span."""
    scope = {"fine": fine, "coarse": coarse, "until": until - until % coarse, "limit": limit}
    scope["until"] = tx.connection.execute(_UNTIL, scope).get
    if keep:
        tx.connection.execute(_COARSEN, scope)
    tx.connection.execute(_DROP, scope)
    return tx.connection.changes()
