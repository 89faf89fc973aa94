"""The dispatcher's moves: due jobs to queued, queued jobs to ticketed, tickets whose time is up forgotten."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import apsw

from penstock.model.ids import JobId, ShardId, from_bytes, to_bytes
from penstock.model.job import BacklogKey, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import millis
from penstock.store.rows import Row
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_PROMOTE = load("promote")
_DISPATCH = load("dispatch")
_EXPIRE_TICKETS, _EXPIRE_OVERDUE_TICKETS = load("expire_tickets"), load("expire_overdue_tickets")


def promote(tx: SqliteTransaction, limit: int) -> list[Event]:
    """Earliest due first."""
    rows = query(tx.connection, _PROMOTE, {"now": tx.now, "limit": limit})
    rows.sort(key=lambda row: row[7:])
    events = [tx.event(from_bytes(row[0]), row, Move.DISPATCH, State.SCHEDULED) for row in rows]
    tx.record(events)
    return events


def dispatch(
    tx: SqliteTransaction, shard: ShardId, room: Mapping[BacklogKey, int], ticket_for: timedelta
) -> list[Ticket]:
    """Within each line: highest priority first, then oldest first."""
    until = tx.now + millis(ticket_for)
    return [
        Ticket(shard, from_bytes(raw_id), *line, priority)
        for line, free in room.items()
        for raw_id, priority, _ in _dispatch_line(tx, line, free, until)
    ]


def _dispatch_line(tx: SqliteTransaction, line: BacklogKey, room: int, until: int) -> list[Row]:
    if room <= 0:
        return []
    scope = {"queue": line.queue, "type": line.type, "room": room, "ticket_until": until, "now": tx.now}
    return sorted(query(tx.connection, _DISPATCH, scope), key=lambda row: (-row[1], row[2]))


def expire_tickets(tx: SqliteTransaction, jobs: Sequence[JobId] | None) -> int:
    """How many tickets were forgotten."""
    if jobs is None:
        tx.connection.execute(_EXPIRE_TICKETS)
    elif jobs:
        ids = apsw.carray(tuple(map(to_bytes, jobs)))
        tx.connection.execute(_EXPIRE_OVERDUE_TICKETS, {"ids": ids, "now": tx.now})
    return tx.connection.changes() if jobs is None or jobs else 0
