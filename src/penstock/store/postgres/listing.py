"""Pages of jobs, newest first. The counts decide what to walk, so that no page reads more than it must.

A line is all jobs of one queue and one type; the counts name every line that there is. An index holds each line in
order, so that a page of any filter is merged from the newest of a few lines.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

from penstock.model.errors import Invalid
from penstock.model.job import Count, JobFilter, Page
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.postgres.arrays import texts
from penstock.store.postgres.reads import counts, jobs_by_id
from penstock.store.postgres.statements import Connection, load, query

NEWEST = (1 << 63) - 1
_CURSOR = re.compile(r"[0-9a-f]{1,15}")


class Walk(StrEnum):
    """A way through the jobs, named like its SQL."""

    LINES = "list_lines"
    BY_TAG = "list_by_tag"
    SCHEDULED = "list_scheduled"
    QUEUED = "list_queued"
    RUNNING = "list_running"


_SQL = {walk: load(walk.value) for walk in Walk}
_BY_STATE = {
    State.SCHEDULED: Walk.SCHEDULED,
    State.QUEUED: Walk.QUEUED,
    State.RUNNING: Walk.RUNNING,
}


async def page(connection: Connection, where: JobFilter, cursor: str | None, limit: int) -> Page:
    """At most `limit` jobs older than the cursor. The connection shows one state of the jobs to all statements."""
    before = NEWEST if cursor is None else _seq_of(cursor)
    counted = await counts(connection)
    matching = [count for count in counted if _matches(where, count)]
    if not matching:
        return Page([], None)
    walk = cheapest(where, counted, limit)
    scope = _scope(walk, where, matching) | {"before": before, "limit": limit + 1}
    found = await query(connection, _SQL[walk], scope)
    jobs = await jobs_by_id(connection, [job for _, job in found[:limit]])
    behind = [f"{seq:x}" for seq, _ in found[:limit]]
    return Page([jobs[job] for _, job in found[:limit]], behind[-1] if len(found) > limit else None, behind)


def cheapest(where: JobFilter, counted: Sequence[Count], limit: int) -> Walk:
    """The walk that reads the fewest rows in the worst case."""
    return Walk.BY_TAG if where.tag is not None else min(_costs(where, counted, limit))[1]


def _costs(where: JobFilter, counted: Sequence[Count], limit: int) -> Iterator[tuple[int, Walk]]:
    """The rows each walk may read: all that it meets without a match and then a page; or all, where it has to sort."""
    matches = _jobs(where, counted)
    lines = len([count for count in counted if _matches(where, count)])
    met = [count for count in counted if where.state in _BY_STATE and count.state not in TERMINAL]
    others = _jobs(JobFilter(type=where.type, queue=where.queue), met) - matches if met else 0
    yield others + limit * lines, Walk.LINES
    if where.state in _BY_STATE:
        yield _jobs(JobFilter(state=where.state), counted), _BY_STATE[where.state]


def _scope(walk: Walk, where: JobFilter, counted: Sequence[Count]) -> dict[str, object]:
    """What a walk is given besides its limits; `counted` are the counts that match."""
    if walk is not Walk.LINES:
        tag = {"tag": where.tag, "state": where.state} if walk is Walk.BY_TAG else {}
        return {"type": where.type, "queue": where.queue, **tag}
    live = sorted({(count.queue, count.type) for count in counted if count.state not in TERMINAL})
    ended = [count for count in counted if count.state in TERMINAL]
    return {
        "state": where.state,
        "live_queues": texts([queue for queue, _ in live]),
        "live_types": texts([type_name for _, type_name in live]),
        "ended_queues": texts([count.queue for count in ended]),
        "ended_types": texts([count.type for count in ended]),
        "ended_states": texts([count.state for count in ended]),
    }


def _jobs(where: JobFilter, counted: Sequence[Count]) -> int:
    return sum(count.jobs for count in counted if _matches(where, count))


def _matches(where: JobFilter, one: Count) -> bool:
    return where.type in (None, one.type) and where.queue in (None, one.queue) and where.state in (None, one.state)


def _seq_of(cursor: str) -> int:
    if not _CURSOR.fullmatch(cursor):
        raise Invalid(f"{cursor!r} is not a cursor: pass on the one of the page before, unchanged")
    return int(cursor, 16)
