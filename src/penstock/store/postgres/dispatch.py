"""The dispatcher's moves: due jobs to queued, queued jobs to ticketed, tickets whose time is up forgotten."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from penstock.model.ids import JobId, ShardId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import millis
from penstock.store.postgres import arrays
from penstock.store.postgres.rows import event_of
from penstock.store.postgres.statements import execute, load, query
from penstock.store.postgres.transaction import Session
from penstock.store.seam import PostTickets

_PROMOTE = load("promote")
_DISPATCH = load("dispatch")
_EXPIRE_TICKETS, _EXPIRE_OVERDUE_TICKETS = load("expire_tickets"), load("expire_overdue_tickets")


async def promote(session: Session, limit: int) -> list[Event]:
    """Earliest due first."""
    rows = await query(session.connection, _PROMOTE, {"now": session.test_now, "limit": limit})
    return [event_of(row[0], row, Move.DISPATCH, State.SCHEDULED) for row in rows]


async def dispatch(
    session: Session, shard: ShardId, room: Mapping[BacklogKey, int], ticket_for: timedelta
) -> list[Ticket]:
    """Within each line: highest priority first, then oldest first."""
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
    """Post what was marked before the commit: a claim that is faster waits for it, and a death undoes the marks."""
    async with session.connection.transaction():
        tickets = await marked(session)
        if tickets:
            await post(tickets)
    return tickets


async def expire_tickets(session: Session, jobs: Sequence[JobId] | None) -> int:
    """How many tickets were forgotten."""
    if jobs is None:
        return await execute(session.connection, _EXPIRE_TICKETS)
    scope = {"now": session.test_now, "ids": arrays.uuids(sorted(jobs))}
    return await execute(session.connection, _EXPIRE_OVERDUE_TICKETS, scope) if jobs else 0
