"""The ends of a job that no owner asked for: cancelled by its client, expired by its deadline."""

from collections.abc import Sequence

from penstock.model.ids import JobId
from penstock.model.job import Cancellation
from penstock.model.lifecycle import Event, Move, State
from penstock.store.postgres import arrays
from penstock.store.postgres.reads import jobs_by_id
from penstock.store.postgres.rows import event_of
from penstock.store.postgres.statements import load, query
from penstock.store.postgres.transaction import Session

_CANCEL = load("cancel")
_EXPIRE = load("expire")


async def cancel(session: Session, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
    """One answer each, in order; of a job named twice the first answer has the event. The jobs are as they are now."""
    scope = {"ids": arrays.uuids(sorted(set(jobs))), "force": force, "now": session.test_now}
    rows = await query(session.connection, _CANCEL, scope)
    moved = {row[0]: event_of(row[0], row, Move.CANCEL, State(row[8])) for row in rows}
    after = await jobs_by_id(session.connection, jobs)
    return [Cancellation(after.get(job), moved.pop(job, None)) for job in jobs]


async def yield_jobs(session: Session, schedule: str, jobs: Sequence[JobId]) -> list[Event]:
    """Cancel those of the jobs that are the schedule's own, to make room."""
    found = await jobs_by_id(session.connection, jobs)
    own = [job for job, one in found.items() if one.schedule == schedule]
    cancelled = await cancel(session, own, force=False) if own else []
    return [one.event for one in cancelled if one.event is not None]


async def expire(session: Session, limit: int) -> list[Event]:
    """Those that expired first."""
    rows = await query(session.connection, _EXPIRE, {"now": session.test_now, "limit": limit})
    return [event_of(row[0], row, Move.EXPIRE, State(row[8])) for row in rows]
