"""The sweeps of dispatcher and pruner: promote due jobs, mark tickets, expire tickets, prune ended jobs."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from penstock.model.clock import millis
from penstock.model.ids import JobId, ShardId
from penstock.model.job import BacklogKey, Pruned, Retention, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.store.postgres import arrays
from penstock.store.postgres.schedules import prune_ticks
from penstock.store.postgres.statements import PostgresTransaction, Session, event_of, execute, load, query
from penstock.store.rows import Row
from penstock.store.seam import PostTickets

_PROMOTE = load("promote")
_DISPATCH = load("dispatch")
_EXPIRE_TICKETS, _EXPIRE_OVERDUE_TICKETS = load("expire_tickets"), load("expire_overdue_tickets")


async def promote(session: Session, limit: int) -> list[Event]:
    """Earliest due first."""
    rows = await query(session.connection, _PROMOTE, session.scope | {"limit": limit})
    return [event_of(row[0], row, Move.DISPATCH, State.SCHEDULED) for row in rows]


async def dispatch(
    session: Session, shard: ShardId, room: Mapping[BacklogKey, int], ticket_for: timedelta
) -> list[Ticket]:
    """Per queue and type: highest priority first, then oldest first."""
    free = {line: jobs for line, jobs in room.items() if jobs > 0}
    if not free:
        return []
    scope = {
        "now": session.test_now,
        "queues": arrays.texts([line.queue for line in free]),
        "types": arrays.texts([line.type for line in free]),
        "rooms": arrays.bigints(list(free.values())),
        "ticket_for": millis(ticket_for),
    }
    return [Ticket(shard, *row) for row in await query(session.connection, _DISPATCH, scope)]


async def post_marked(
    session: Session, marked: Callable[[Session], Awaitable[list[Ticket]]], post: PostTickets
) -> list[Ticket]:
    """Post the tickets before the marks are committed: an early claim waits for it, a crash undoes the marks."""
    async with session.connection.transaction():
        tickets = await marked(session)
        if tickets:
            await post(tickets)
    return tickets


async def expire_tickets(session: Session, jobs: Sequence[JobId] | None) -> int:
    """The number of tickets expired."""
    if jobs is None:
        return await execute(session.connection, _EXPIRE_TICKETS)
    scope = {"now": session.test_now, "ids": arrays.uuids(sorted(jobs))}
    return await execute(session.connection, _EXPIRE_OVERDUE_TICKETS, scope) if jobs else 0


_PRUNE = load("prune")
_PRUNE_ANCHORS = load("prune_anchors")

TICK_RECORDS_PER_JOB = 50
"""Tick records pruned per job: they are small, and a schedule that mostly skips has far more of them than jobs."""


async def prune(tx: PostgresTransaction, keep: Retention, limit: int) -> Pruned:
    """At most `limit` jobs over all states, the longest ended first within each."""
    rows: list[Row] = []
    for state, kept in _retentions(keep):
        scope = tx.scope | {"state": state, "until": tx.now - millis(kept), "limit": limit - len(rows)}
        rows += await query(tx.connection, _PRUNE, scope)
    anchors = tx.scope | {"until": tx.now - millis(keep.longest), "limit": limit - len(rows)}
    rows += await query(tx.connection, _PRUNE_ANCHORS, anchors)
    await prune_ticks(tx, tx.now - millis(keep.failed), limit * TICK_RECORDS_PER_JOB)
    return Pruned(len(rows), tuple(job for job, owns_objects in rows if owns_objects))


def _retentions(keep: Retention) -> Iterator[tuple[State, timedelta]]:
    yield State.SUCCEEDED, keep.succeeded
    for state in (State.FAILED, State.CANCELLED, State.EXPIRED):
        yield state, keep.failed
