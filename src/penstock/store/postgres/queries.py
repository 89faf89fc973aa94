"""Reads of jobs, each from one snapshot."""

import re
from collections.abc import Sequence
from datetime import datetime

from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Count, Job, JobFilter, Lease, LogLine, Page
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.postgres import arrays
from penstock.store.postgres.arrays import bigints, texts
from penstock.store.postgres.statements import Connection, PostgresTransaction, Session, execute, load, query
from penstock.store.rows import LogEnd, Row, instant, job_of, new_lines
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
    """The jobs that exist, by id."""
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


NEWEST = (1 << 63) - 1
UNORDERED = (State.QUEUED, State.RUNNING)
"""The states of jobs that have a ticket or run."""

_CURSOR = re.compile(r"[0-9a-f]{1,15}")
_LINES = load("list_lines")
_BY_TAG = load("list_by_tag")


async def page(connection: Connection, where: JobFilter, cursor: str | None, limit: int) -> Page:
    """At most `limit` jobs older than the cursor. The connection must be in one snapshot for all statements."""
    before = NEWEST if cursor is None else _seq_of(cursor)
    matching = [count for count in await counts(connection) if _matches(where, count)]
    if not matching:
        return Page([], None)
    found = await _newest(connection, where, matching, {"before": before, "limit": limit + 1})
    jobs = await jobs_by_id(connection, [job for _, job in found[:limit]])
    behind = [f"{seq:x}" for seq, _ in found[:limit]]
    return Page([jobs[job] for _, job in found[:limit]], behind[-1] if len(found) > limit else None, behind)


async def _newest(
    connection: Connection, where: JobFilter, matching: Sequence[Count], bounds: dict[str, object]
) -> list[Row]:
    """The seq and the id of each."""
    scope = bounds | {"type": where.type, "queue": where.queue}
    if where.tag is not None:
        return await query(connection, _BY_TAG, scope | {"tag": where.tag, "state": where.state})
    return await query(connection, _LINES, scope | _lines(matching))


def _lines(matching: Sequence[Count]) -> dict[str, object]:
    later = [count for count in matching if count.state is State.SCHEDULED]
    waiting = [count for count in matching if count.state is State.QUEUED]
    ended = [count for count in matching if count.state in TERMINAL]
    return {
        "later_queues": texts([count.queue for count in later]),
        "later_types": texts([count.type for count in later]),
        "waiting_queues": texts([count.queue for count in waiting]),
        "waiting_types": texts([count.type for count in waiting]),
        "away": texts(sorted({count.state for count in matching if count.state in UNORDERED})),
        "ended_queues": texts([count.queue for count in ended]),
        "ended_types": texts([count.type for count in ended]),
        "ended_states": texts([count.state for count in ended]),
    }


def _matches(where: JobFilter, one: Count) -> bool:
    return where.type in (None, one.type) and where.queue in (None, one.queue) and where.state in (None, one.state)


def _seq_of(cursor: str) -> int:
    if not _CURSOR.fullmatch(cursor):
        raise Invalid(f"{cursor!r} is not a cursor: pass on the one of the page before, unchanged")
    return int(cursor, 16)


_OWNED = load("owned")
_LOG_END = load("log_end")
_APPEND_LOG = load("append_log")
_READ_LOG = load("read_log")


async def append_log(
    tx: PostgresTransaction, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None
) -> bool:
    """False if the fence is lost; then nothing is kept."""
    owned = await query(tx.connection, _OWNED, {"id": lease.job, "fence": lease.fence})
    if not owned:
        return False
    ((seq,),) = owned
    last = await query(tx.connection, _LOG_END, {"seq": seq, "fence": lease.fence})
    end = LogEnd(*last[0]) if last else LogEnd()
    kept = [
        (position, to_millis(line.at), line.attempt, size, _kept_text(line.stream), _kept_text(line.text), number)
        for position, size, number, line in new_lines(end, lines, cap, first)
    ]
    if kept:
        await execute(tx.connection, _APPEND_LOG, _columns(seq, lease.fence, kept))
    return True


async def read_log(connection: Connection, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    rows = await query(connection, _READ_LOG, {"job": job, "after": after, "limit": limit})
    lines = [LogLine(from_millis(at), stream, text, attempt) for _, at, stream, text, attempt in rows]
    return lines, rows[-1][0] if rows else after


def _kept_text(text: str) -> str:
    """Text without U+0000, the one character that PostgreSQL cannot store."""
    return text.replace("\0", "␀")


def _columns(seq: int, fence: int, kept: Sequence[Row]) -> dict[str, object]:
    positions, ats, attempts, sizes, streams, written, numbers = zip(*kept, strict=True)
    return {
        "seq": seq,
        "fence": fence,
        "positions": bigints(positions),
        "ats": bigints(ats),
        "attempts": bigints(attempts),
        "sizes": bigints(sizes),
        "streams": texts(streams),
        "texts": texts(written),
        "numbers": bigints(numbers),
    }
