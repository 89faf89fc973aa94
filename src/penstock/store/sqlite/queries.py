"""Reads of jobs, each from one snapshot; and the log, which is appended to here."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum

import apsw

from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import BacklogKey, Count, Job, JobFilter, Lease, LogLine, Page
from penstock.model.lifecycle import State
from penstock.store.rows import LogEnd, instant, new_lines
from penstock.store.seam import DueSummary
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import SqliteTransaction, job_of

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
    """Jobs by queue, type and state; zeros are left out."""
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


NEWEST = (1 << 63) - 1
_CURSOR = re.compile(r"[0-9a-f]{1,15}")


class Walk(StrEnum):
    """A way to list jobs, named like its SQL file."""

    NEWEST = "list_newest"
    BY_TYPE = "list_by_type"
    BY_QUEUE = "list_by_queue"
    BY_TAG = "list_by_tag"
    UNHAPPY = "list_unhappy"
    SCHEDULED = "list_scheduled"
    QUEUED = "list_queued"
    RUNNING = "list_running"


_SQL = {walk: load(walk.value) for walk in Walk}
_BY_STATE = {
    State.SCHEDULED: Walk.SCHEDULED,
    State.QUEUED: Walk.QUEUED,
    State.RUNNING: Walk.RUNNING,
}


def page(connection: apsw.Connection, where: JobFilter, cursor: str | None, limit: int) -> Page:
    """At most `limit` jobs older than the cursor."""
    before = NEWEST if cursor is None else _seq_of(cursor)
    walk = cheapest(where, counts(connection), limit)
    if walk is None:
        return Page([], None)
    scope = {
        "type": where.type,
        "queue": where.queue,
        "tag": where.tag,
        "state": where.state,
        "before": before,
        "limit": limit + 1,
    }
    seqs = [seq for (seq,) in query(connection, _SQL[walk], scope)]
    jobs = jobs_by_seq(connection, seqs[:limit])
    behind = [f"{seq:x}" for seq in seqs[:limit]]
    return Page([jobs[seq] for seq in seqs[:limit]], behind[-1] if len(seqs) > limit else None, behind)


def cheapest(where: JobFilter, counted: list[Count], limit: int) -> Walk | None:
    """The walk that reads the fewest rows in the worst case; None when nothing can match."""
    if not _jobs(counted, where):
        return None
    if where.tag is not None:
        return Walk.BY_TAG
    return min(_costs(where, counted, limit))[1]


def _costs(where: JobFilter, counted: list[Count], limit: int) -> Iterator[tuple[int, Walk]]:
    """The rows that each walk may read: those that do not match and then a page; or all, where it has to sort."""
    matches = _jobs(counted, where)

    def in_order(read: JobFilter) -> int:
        return _jobs(counted, read) - matches + limit

    yield in_order(JobFilter()), Walk.NEWEST
    if where.type is not None:
        yield in_order(JobFilter(type=where.type)), Walk.BY_TYPE
    if where.queue is not None:
        yield in_order(JobFilter(queue=where.queue)), Walk.BY_QUEUE
    match where.state:
        case State.FAILED | State.CANCELLED | State.EXPIRED:
            yield in_order(JobFilter(state=where.state)), Walk.UNHAPPY
        case State.SCHEDULED | State.QUEUED | State.RUNNING:
            yield _jobs(counted, JobFilter(state=where.state)), _BY_STATE[where.state]
        case State.SUCCEEDED | None:
            pass


def _jobs(counted: list[Count], where: JobFilter) -> int:
    return sum(
        count.jobs
        for count in counted
        if where.type in (None, count.type)
        and where.queue in (None, count.queue)
        and where.state in (None, count.state)
    )


def _seq_of(cursor: str) -> int:
    if not _CURSOR.fullmatch(cursor):
        raise Invalid(f"{cursor!r} is not a cursor: pass on the one of the page before, unchanged")
    return int(cursor, 16)


_LOG_END = load("log_end")
_APPEND_LOG = Bulk("append_log")
_READ_LOG = load("read_log")


def append_log(tx: SqliteTransaction, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None) -> bool:
    """Append lines; False, and nothing is stored, when the fence is lost."""
    end = query(tx.connection, _LOG_END, {"id": to_bytes(lease.job), "fence": lease.fence})
    if not end:
        return False
    ((seq, *last),) = end
    rows = [
        (seq, position, to_millis(line.at), line.attempt, size, line.stream, line.text, lease.fence, number)
        for position, size, number, line in new_lines(LogEnd(*last), lines, cap, first)
    ]
    _APPEND_LOG.execute(tx.connection, rows)
    return True


def read_log(connection: apsw.Connection, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    scope = {"id": to_bytes(job), "after": after, "limit": limit}
    rows = query(connection, _READ_LOG, scope)
    lines = [LogLine(from_millis(at), stream, text, attempt) for _, at, stream, text, attempt in rows]
    return lines, rows[-1][0] if rows else after
