"""The sweeps of a shard: promote, dispatch, expire tickets and jobs, and claims from the line."""

from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from penstock.model.clock import from_millis, millis
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Claim, Ticket
from penstock.model.lifecycle import WAITING, Event, Move, State
from penstock.store.answers import group_by
from penstock.store.dynamodb.concurrency import gather_bounded
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.heads import JobStep
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import AFTER_ALL, millis_key
from penstock.store.dynamodb.leases import Wanted, claim_unticketed
from penstock.store.dynamodb.lines import (
    backlog_key,
    due_until,
    heads_of_lines,
    in_line,
    is_open,
    next_due,
    urgency,
    walk_ticketed,
)
from penstock.store.dynamodb.moves import event_of, expire_ticket, is_expired, ticket
from penstock.store.dynamodb.table import SortRange
from penstock.store.dynamodb.values import Item, ItemKey
from penstock.store.seam import DueSummary, PostTickets, Share

DUE_JOBS = 5000
"""How many jobs that have fallen due are looked at in one pass."""

ABANDONED_MILLIS = 3_600_000
"""How long after its deadline an entry stays whose job is not there: its submit is surely over then."""


async def promote(context: ShardContext, limit: int) -> list[Event]:
    """Promote the jobs that were due first."""
    now = context.now
    found = await _take(due_until(context, now), limit)
    steps = [JobStep(JobId(item["pk"]), partial(context.moves.promote, now=now)) for item in found]
    moved = await context.heads.move(steps)
    return [event_of(one.before, one.after, Move.DISPATCH, now) for one in moved if one.after is not None]


async def dispatch(
    context: ShardContext,
    room: Mapping[BacklogKey, int],
    ticket_for: timedelta,
    post: PostTickets | None,
    *,
    due: bool,
) -> list[Ticket]:
    """Within each queue and type: highest priority first, then oldest first. Where others were faster, look further.

    Tickets are posted before the marks are written: after a crash in between the jobs get tickets again at once.
    """
    now = context.now
    fallen_due = group_by(await _take(due_until(context, now), DUE_JOBS), backlog_key) if due else {}
    lines = {
        key: _open_only(_in_order(in_line(context, key, min(jobs + 20, 1000)), fallen_due.get(key, [])), now)
        for key, jobs in room.items()
    }
    left = {key: jobs for key, jobs in room.items() if jobs > 0}
    tickets: list[Ticket] = []
    while left:
        found = dict(zip(left, await gather_bounded(_take(lines[key], left[key]) for key in left), strict=True))
        marked = await _post_and_mark(context, [item for items in found.values() for item in items], ticket_for, post)
        tickets += marked
        taken = Counter(one.backlog_key for one in marked)
        # A line that gave fewer than asked for has ended.
        left = {key: jobs - taken[key] for key, jobs in left.items() if len(found[key]) == jobs and taken[key] < jobs}
    return tickets


async def _post_and_mark(
    context: ShardContext, items: Sequence[Item], ticket_for: timedelta, post: PostTickets | None
) -> list[Ticket]:
    now = context.now
    heads = await context.heads.read(JobId(item["pk"]) for item in items)
    found = [heads[JobId(item["pk"])] for item in items if item["pk"] in heads]
    mark = partial(_mark, context, now=now, until=context.table.clock.latest() + millis(ticket_for))
    free = [head for head in found if mark(head) is not None]
    if post is not None and free:
        await post([_ticket_of(context, head) for head in free])
    moved = await context.heads.move([JobStep(head.id, mark) for head in free])
    return [_ticket_of(context, one.after) for one in moved if one.after is not None]


def _mark(context: ShardContext, head: Head, now: int, until: int) -> Head | None:
    """Give a job its ticket; one that has just fallen due is promoted in the same write."""
    if head.state is State.SCHEDULED:
        return None if is_expired(head, now) else context.moves.promote(head, now, until)
    return ticket(head, now, until)


async def _in_order(line: AsyncIterator[Item], others: Sequence[Item]) -> AsyncIterator[Item]:
    """A line, and other jobs of its queue and type between, by urgency."""
    waiting = deque(sorted(others, key=urgency))
    async for item in line:
        while waiting and urgency(waiting[0]) < urgency(item):
            yield waiting.popleft()
        yield item
    for item in waiting:
        yield item


def _ticket_of(context: ShardContext, head: Head) -> Ticket:
    return Ticket(context.shard, head.id, head.queue, head.type, head.priority)


async def overdue_tickets(context: ShardContext, after: JobId | None, limit: int) -> list[JobId]:
    """By id, after an id."""
    now = context.now
    overdue = sorted([JobId(item["pk"]) async for item in walk_ticketed(context) if item["un"] <= now])
    return [job for job in overdue if after is None or job > after][:limit]


async def expire_tickets(context: ShardContext, jobs: Sequence[JobId] | None) -> int:
    """Expire tickets; how many."""
    decide = partial(expire_ticket, now=None if jobs is None else context.now)
    if jobs is None:
        jobs = [JobId(item["pk"]) async for item in walk_ticketed(context)]
    moved = await context.heads.move([JobStep(job, decide) for job in dict.fromkeys(jobs)])
    return sum(one.after is not None for one in moved)


async def due_summary(context: ShardContext) -> DueSummary:
    """One query for each queue and type in line, and one for the next that falls due."""
    now = context.now
    backlog = set()
    async for first in heads_of_lines(context):
        key = backlog_key(first)
        if is_open(first, now) or await _take(_open_only(in_line(context, key), now), 1):
            backlog.add(key)
    first_due = await next_due(context)
    if first_due is None:
        return DueSummary(frozenset(backlog), None)
    fallen_due = await _take(due_until(context, now), DUE_JOBS) if first_due["due"] <= now else []
    return DueSummary(
        frozenset(backlog), from_millis(first_due["due"]), frozenset(backlog_key(item) for item in fallen_due)
    )


class LineHead(NamedTuple):
    """The first job of a type that was not taken yet, and what stands behind it."""

    urgency: tuple[int, str]
    place: int
    item: Item
    behind: AsyncIterator[Item]


async def claim_next(context: ShardContext, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
    """Within each queue: highest priority first, then oldest first."""
    taken = await gather_bounded(_claim_share(context, share, worker, lease) for share in asked if share.jobs > 0)
    heads = [head for share in taken for head in share]
    return await context.jobs.claims(heads, [lease] * len(heads))


async def _claim_share(context: ShardContext, share: Share, worker: str, lease: timedelta) -> list[Head]:
    """Claim from the merged lines of the types; where others were faster, look further."""
    line = _merge_lines(context, share, context.now)
    heads: list[Head] = []
    while room := share.jobs - len(heads):
        found = await _take(line, room)
        wanted = [Wanted(_ticket_for(context, item), worker, lease) for item in found]
        heads += [head for head in await claim_unticketed(context, wanted) if head is not None]
        if len(found) < room:
            break
    return heads


def _ticket_for(context: ShardContext, item: Item) -> Ticket:
    return Ticket(context.shard, JobId(item["pk"]), item["q"], item["t"], item["pr"])


async def _merge_lines(context: ShardContext, share: Share, now: int) -> AsyncIterator[Item]:
    """The jobs of several types by urgency, each type's line read as far as it is needed."""
    page = min(share.jobs + 20, 1000)
    keys = [BacklogKey(share.queue, name) for name in dict.fromkeys(share.types)]
    lines = [_open_only(in_line(context, key, page), now) for key in keys]
    firsts = await gather_bounded(_take(line, 1) for line in lines)
    heap = [
        LineHead(urgency(first[0]), place, first[0], line)
        for place, (first, line) in enumerate(zip(firsts, lines, strict=True))
        if first
    ]
    heapify(heap)
    while heap:
        head = heap[0]
        yield head.item
        following = await _take(head.behind, 1)
        if following:
            heapreplace(heap, LineHead(urgency(following[0]), head.place, following[0], head.behind))
        else:
            heappop(heap)


async def expire(context: ShardContext, limit: int) -> list[Event]:
    """Expire the jobs whose time ran out first."""
    now = context.now
    entries = context.table.walk(f"{context.prefix}expires", SortRange(most=millis_key(now) + AFTER_ALL))
    events: list[Event] = []
    while len(events) < limit and (found := await _take(entries, limit - len(events))):
        events += await _expire_jobs(context, found, now)
    return events


async def _expire_jobs(context: ShardContext, entries: Sequence[Item], now: int) -> list[Event]:
    jobs = [JobId(entry["sk"].partition("#")[2]) for entry in entries]
    decide = partial(context.moves.expire, now=now)
    heads = await context.heads.read(jobs)
    waiting = [job for job in jobs if job in heads and heads[job].state in WAITING]
    moved = await context.heads.move([JobStep(job, decide) for job in waiting])
    await context.record_ends([one.after for one in moved if one.after is not None])
    heads |= {one.after.id: one.after for one in moved if one.after is not None}
    await _forget(context, [one for one, job in zip(entries, jobs, strict=True) if _is_over(one, heads.get(job), now)])
    return [event_of(one.before, one.after, Move.EXPIRE, now) for one in moved if one.after is not None]


def _is_over(entry: Item, head: Head | None, now: int) -> bool:
    """Whether a job can no longer expire. One that runs may wait again; one that is not there may still be inserted."""
    if head is None:
        return int(entry["sk"].partition("#")[0]) + ABANDONED_MILLIS <= now
    return head.state is not State.RUNNING and head.state not in WAITING


async def _forget(context: ShardContext, entries: Sequence[Item]) -> None:
    await gather_bounded(context.table.delete(ItemKey(entry["pk"], entry["sk"])) for entry in entries)


async def _open_only(items: AsyncIterator[Item], now: int) -> AsyncIterator[Item]:
    async for item in items:
        if is_open(item, now):
            yield item


async def _take(items: AsyncIterator[Item], most: int) -> list[Item]:
    """Up to so many of the next items."""
    taken: list[Item] = []
    if most <= 0:
        return taken
    async for item in items:
        taken.append(item)
        if len(taken) == most:
            break
    return taken
