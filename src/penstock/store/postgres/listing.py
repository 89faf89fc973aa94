"""Pages of jobs, newest first. The counts name every line that there is, so that no page looks for others.

A line is all jobs of one queue and one type that wait for their time or for a ticket, or that ended in one way; or all
that are out with a ticket or at a worker. An index holds each line in order, so that a page of any
filter is merged from the newest of a few lines.
"""

import re
from collections.abc import Sequence

from penstock.model.errors import Invalid
from penstock.model.job import Count, JobFilter, Page
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.postgres.arrays import texts
from penstock.store.postgres.reads import counts, jobs_by_id
from penstock.store.postgres.statements import Connection, load, query
from penstock.store.rows import Row

NEWEST = (1 << 63) - 1
UNORDERED = (State.QUEUED, State.RUNNING)
"""What a job may be that is out with a ticket or at a worker."""

_CURSOR = re.compile(r"[0-9a-f]{1,15}")
_LINES = load("list_lines")
_BY_TAG = load("list_by_tag")


async def page(connection: Connection, where: JobFilter, cursor: str | None, limit: int) -> Page:
    """At most `limit` jobs older than the cursor. The connection shows one state of the jobs to all statements."""
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
