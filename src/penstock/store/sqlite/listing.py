"""Pages of jobs, newest first. The counts decide which index to walk, so that no page reads more than it must."""

import re
from collections.abc import Iterator
from enum import StrEnum

import apsw

from penstock.model.errors import Invalid
from penstock.model.job import Count, JobFilter, Page
from penstock.model.lifecycle import State
from penstock.store.sqlite.reads import counts, jobs_by_seq
from penstock.store.sqlite.statements import load, query

NEWEST = (1 << 63) - 1
_CURSOR = re.compile(r"[0-9a-f]{1,15}")


class Walk(StrEnum):
    """A way through the jobs, named like its SQL."""

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
    """The rows each walk may read: all that it meets without a match and then a page; or all, where it has to sort."""
    matches = _jobs(counted, where)

    def in_order(met: JobFilter) -> int:
        return _jobs(counted, met) - matches + limit

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
