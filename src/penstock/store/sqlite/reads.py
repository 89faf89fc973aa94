"""What is read of jobs, each from one snapshot."""

from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime

import apsw

from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import BacklogKey, Count, Job
from penstock.model.lifecycle import State
from penstock.model.timing import from_millis, to_millis
from penstock.store.rows import instant
from penstock.store.seam import DueSummary
from penstock.store.sqlite.rows import job_of
from penstock.store.sqlite.statements import load, query

_JOBS_BY_ID = load("jobs_by_id")
_JOBS_BY_SEQ = load("jobs_by_seq")
_COUNTS = load("counts")
_BACKLOG = load("backlog")
_NEXT_DUE = load("next_due")
_OVERDUE_TICKETS = load("overdue_tickets")
_OLDEST_DUE = load("oldest_due")
_DUE_BEFORE = load("due_before")
_RUNNING_BY_WORKER = load("running_by_worker")


def get(connection: apsw.Connection, jobs: Sequence[JobId]) -> list[Job | None]:
    found = jobs_by_id(connection, jobs)
    return [found.get(job) for job in jobs]


def jobs_by_id(connection: apsw.Connection, jobs: Sequence[JobId]) -> dict[JobId, Job]:
    """Those of the jobs that there are."""
    if not jobs:
        return {}
    ids = apsw.carray(tuple(map(to_bytes, jobs)))
    found = [job_of(row) for row in query(connection, _JOBS_BY_ID, {"ids": ids})]
    return {job.id: job for job in found}


def jobs_by_seq(connection: apsw.Connection, seqs: Sequence[int]) -> dict[int, Job]:
    """Those of the jobs that there are."""
    if not seqs:
        return {}
    rows = query(connection, _JOBS_BY_SEQ, {"seqs": seqs_of(seqs)})
    return {row[0]: job_of(row) for row in rows}


def seqs_of(seqs: Iterable[int]) -> "apsw.Binding":
    """An array to be bound; it must not be empty."""
    return apsw.carray(array("q", seqs))


def counts(connection: apsw.Connection) -> list[Count]:
    """By queue, type and state; none is zero."""
    rows = query(connection, _COUNTS)
    return [Count(queue, type_name, State(state), jobs) for queue, type_name, state, jobs in rows]


def due_summary(connection: apsw.Connection, now: int) -> DueSummary:
    backlog = frozenset(BacklogKey(*row) for row in query(connection, _BACKLOG, {"now": now}))
    return DueSummary(backlog, instant(connection.execute(_NEXT_DUE).get))


def overdue_tickets(connection: apsw.Connection, after: JobId | None, limit: int, now: int) -> list[JobId]:
    scope = {"now": now, "after": b"" if after is None else to_bytes(after), "limit": limit}
    return [from_bytes(raw_id) for (raw_id,) in query(connection, _OVERDUE_TICKETS, scope)]


def oldest_due(connection: apsw.Connection) -> dict[str, datetime]:
    return {queue: from_millis(due_at) for queue, due_at in query(connection, _OLDEST_DUE)}


def due_before(connection: apsw.Connection, before: datetime, limit: int) -> list[tuple[str, datetime]]:
    rows = query(connection, _DUE_BEFORE, {"before": to_millis(before), "limit": limit})
    return [(queue, from_millis(due_at)) for queue, due_at in rows]


def running_by_worker(connection: apsw.Connection) -> dict[str, int]:
    return dict(query(connection, _RUNNING_BY_WORKER))
