"""What is read of jobs, each from one snapshot."""

from collections.abc import Sequence
from datetime import datetime

from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Count, Job
from penstock.model.lifecycle import State
from penstock.model.timing import from_millis, to_millis
from penstock.store.postgres import arrays
from penstock.store.postgres.statements import Connection, load, query
from penstock.store.postgres.transaction import Session
from penstock.store.rows import instant, job_of
from penstock.store.seam import DueSummary

_JOBS_BY_ID = load("jobs_by_id")
_COUNTS = load("counts")
_DUE_SUMMARY = load("due_summary")
_OVERDUE_TICKETS = load("overdue_tickets")
_OLDEST_DUE = load("oldest_due")
_DUE_BEFORE = load("due_before")
_RUNNING_BY_WORKER = load("running_by_worker")
_SHARD_NOW = load("shard_now")


async def get(session: Session, jobs: Sequence[JobId]) -> list[Job | None]:
    found = await jobs_by_id(session.connection, jobs)
    return [found.get(job) for job in jobs]


async def jobs_by_id(connection: Connection, jobs: Sequence[JobId]) -> dict[JobId, Job]:
    """Those of the jobs that there are."""
    if not jobs:
        return {}
    found = [job_of(row) for row in await query(connection, _JOBS_BY_ID, arrays.id_range(jobs))]
    return {job.id: job for job in found}


async def counts(connection: Connection) -> list[Count]:
    """By queue, type and state; none is zero."""
    rows = await query(connection, _COUNTS)
    return [Count(queue, type_name, State(state), jobs) for queue, type_name, state, jobs in rows]


async def due_summary(connection: Connection, given: int | None) -> DueSummary:
    ((due_at, backlog),) = await query(connection, _DUE_SUMMARY, {"now": given})
    return DueSummary(frozenset(BacklogKey(*line) for line in backlog), instant(due_at))


async def overdue_tickets(connection: Connection, after: JobId | None, limit: int, given: int | None) -> list[JobId]:
    rows = await query(connection, _OVERDUE_TICKETS, {"now": given, "after": after, "limit": limit})
    return [job for (job,) in rows]


async def oldest_due(connection: Connection) -> dict[str, datetime]:
    return {queue: from_millis(due_at) for queue, due_at in await query(connection, _OLDEST_DUE)}


async def due_before(connection: Connection, before: datetime, limit: int) -> list[tuple[str, datetime]]:
    rows = await query(connection, _DUE_BEFORE, {"before": to_millis(before), "limit": limit})
    return [(queue, from_millis(due_at)) for queue, due_at in rows]


async def running_by_worker(connection: Connection) -> dict[str, int]:
    return dict(await query(connection, _RUNNING_BY_WORKER))


async def now(connection: Connection) -> datetime:
    """The shard's clock: the server's own."""
    ((millis,),) = await query(connection, _SHARD_NOW, {"now": None})
    return from_millis(millis)
