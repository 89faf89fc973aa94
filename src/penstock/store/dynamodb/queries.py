"""Lists, counts and ages of jobs."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import JobId
from penstock.model.job import Count, Job, JobFilter, Page
from penstock.model.lifecycle import State
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.items import AWAY, DUE, LINE, NOT_LISTED, Head
from penstock.store.dynamodb.lines import due_until, heads_of_lines, walk_running, walk_ticketed
from penstock.store.dynamodb.schema import AGE, PLACE
from penstock.store.dynamodb.table import BATCH_KEYS, SortRange
from penstock.store.dynamodb.values import Item

COUNTED_MAX = 10_000
"""Up to so many waiting and running jobs are counted, each time; a longer backlog is counted as so many at least."""

_CURSOR = re.compile(r"[0-9]{14}[0-9a-f]{12}")


async def counts(context: ShardContext) -> list[Count]:
    """Waiting and running jobs counted in the index, ended ones by their counters."""
    live: Counter[tuple[str, str, str]] = Counter()
    for partition in (DUE, LINE, AWAY):
        async for item in context.table.walk(context.prefix + partition, index=PLACE):
            live[item["q"], item["t"], item["st"]] += 1
            if live.total() >= COUNTED_MAX:
                break
    found = [Count(queue, type_name, State(state), jobs) for (queue, type_name, state), jobs in live.items()]
    return found + await context.ended.read()


async def oldest_due(context: ShardContext) -> dict[str, datetime]:
    """Of the first job of each queue, type and priority in line, and of all that have a ticket."""
    oldest: dict[str, int] = {}
    async for item in heads_of_lines(context, by_priority=True):
        oldest[item["q"]] = min(item["due"], oldest.get(item["q"], item["due"]))
    async for item in walk_ticketed(context):
        oldest[item["q"]] = min(item["due"], oldest.get(item["q"], item["due"]))
    return {queue: from_millis(due) for queue, due in oldest.items()}


async def due_before(context: ShardContext, before: datetime, limit: int) -> list[tuple[str, datetime]]:
    """Earliest first."""
    found: list[tuple[str, datetime]] = []
    if limit <= 0:
        return found
    async for item in due_until(context, to_millis(before) - 1, page=min(limit, 1000)):
        found.append((item["q"], from_millis(item["due"])))
        if len(found) == limit:
            break
    return found


async def running_by_worker(context: ShardContext) -> dict[str, int]:
    return dict(Counter([item["w"] async for item in walk_running(context)]))


async def page(context: ShardContext, where: JobFilter, cursor: str | None, limit: int) -> Page:
    """At most `limit` jobs older than the cursor, by the index that names the fewest others."""
    if cursor is not None and _CURSOR.fullmatch(cursor) is None:
        raise Invalid(f"{cursor!r} is no cursor of a page: take one from an earlier answer")
    heads: list[Head] = []
    async for head in _walk_matches(context, where, cursor):
        heads.append(head)
        if len(heads) > limit:
            break
    more, heads = len(heads) > limit, heads[:limit]
    whole = await context.jobs.whole(heads)
    behind = [head.order for head in heads]
    return Page(_ordered(heads, whole), behind[-1] if more and behind else None, behind)


def _ordered(heads: list[Head], whole: dict[JobId, Job]) -> list[Job]:
    return [whole[head.id] for head in heads]


async def _walk_matches(context: ShardContext, where: JobFilter, cursor: str | None) -> AsyncIterator[Head]:
    """Heads that match, newest first: candidates by an index, in batches, judged by what they are now."""
    batch: list[JobId] = []
    async for job in _candidates(context, where, cursor):
        batch.append(job)
        if len(batch) == BATCH_KEYS:
            for head in await _judge_batch(context, batch, where):
                yield head
            batch = []
    for head in await _judge_batch(context, batch, where) if batch else ():
        yield head


async def _judge_batch(context: ShardContext, jobs: list[JobId], where: JobFilter) -> list[Head]:
    heads = await context.heads.read(jobs)
    found = (heads[job] for job in jobs if job in heads)
    return [head for head in found if _matches(head, where)]


def _matches(head: Head, where: JobFilter) -> bool:
    return (
        (where.type is None or head.type == where.type)
        and (where.queue is None or head.queue == where.queue)
        and (where.state is None or head.state is where.state)
        and (where.tag is None or where.tag in head.origin.tags)
    )


async def _candidates(context: ShardContext, where: JobFilter, cursor: str | None) -> AsyncIterator[JobId]:
    prefix = context.prefix
    older = SortRange() if cursor is None else SortRange(most=cursor)
    if where.tag is not None:
        partition, index = f"{prefix}tag#{where.tag}", None
    elif where.state is State.RUNNING:
        partition, index = prefix + AWAY, PLACE
    elif where.state is not None and where.state.terminal and where.state not in NOT_LISTED:
        partition, index = prefix + where.state.value, PLACE
    else:
        partition, index = f"{prefix}age", AGE
    async for item in context.table.walk(partition, older, index=index, forward=False, page=BATCH_KEYS):
        if _order_of(item) != cursor and _may_match(item, where, index):
            yield JobId(item["sk"].partition("#")[2] if index is None else item["pk"])


def _order_of(item: Item) -> str:
    found: str = item.get("gs") or item.get("aq") or item["sk"].partition("#")[0]
    return found


def _may_match(item: Item, where: JobFilter, index: str | None) -> bool:
    """Whether what the index holds allows a match."""
    if index is None:
        return True
    return (where.queue is None or item["q"] == where.queue) and (where.type is None or item["t"] == where.type)
