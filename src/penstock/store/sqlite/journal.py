"""Reads of the journal, and its pruning. Entries are written by `transaction`: one writer, so numbers are in order."""

from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

import apsw

from penstock.model.journal import Entry, JournalPage
from penstock.store.sqlite.entries import entry_of
from penstock.store.sqlite.schedules import ceil_millis
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_BOUNDS = load("journal_bounds")
_READ = load("read_journal")
_ENTRY_AT = load("entry_at")
_OLDEST, _PRUNE = load("oldest_entries"), load("prune_journal")


class JournalBounds(NamedTuple):
    """The greatest number that was given, the least that is kept, and the last whose jobs are in the history."""

    head: int
    oldest: int
    folded: int


def read_bounds(connection: apsw.Connection) -> JournalBounds:
    ((head, oldest, folded),) = query(connection, _BOUNDS)
    return JournalBounds(head, head + 1 if oldest is None else oldest, folded)


def read_journal(connection: apsw.Connection, after: int, limit: int) -> JournalPage:
    """As many entries as hold at least `limit` events, if there are so many."""
    entries: list[Entry] = []
    events = 0
    for row in connection.execute(_READ, {"after": after}):
        entries.append(entry_of(row))
        events += len(entries[-1].jobs)
        if events >= limit:
            break
    bounds = read_bounds(connection)
    return JournalPage(entries, bounds.oldest, bounds.head)


def find_number(connection: apsw.Connection, at: datetime) -> int:
    """Bisect the numbers: times grow along them, but for steps of the wall clock."""
    bounds, wanted = read_bounds(connection), ceil_millis(at)
    least, most = bounds.oldest, bounds.head + 1
    while least < most:
        middle = (least + most) // 2
        ((_, found_at),) = query(connection, _ENTRY_AT, {"number": middle})
        if found_at < wanted:
            least = middle + 1
        else:
            most = middle
    return least - 1


def prune_entries(tx: SqliteTransaction, until: int, limit: int) -> int:
    """Delete entries whose jobs are in the history, from the oldest on; how many."""
    oldest = query(tx.connection, _OLDEST, {"limit": limit})
    past = [number for number, _ in takewhile(lambda row: row[1] <= until, oldest)]
    if past:
        tx.connection.execute(_PRUNE, {"number": past[-1]})
    return len(past)
