"""Reads of the index `place`: what is due, what stands in line by queue and type, and what is away or running.

An index shows what was true up to about a second ago. Whoever acts on it decides again on the heads.
"""

from collections.abc import AsyncIterator
from typing import Any

from penstock.model.job import BacklogKey
from penstock.model.lifecycle import State
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.items import AWAY, DUE, LINE, after_line, line_prefix
from penstock.store.dynamodb.keys import AFTER_ALL, millis_key
from penstock.store.dynamodb.schema import PLACE
from penstock.store.dynamodb.table import SortRange
from penstock.store.dynamodb.values import Item


def due_until(context: ShardContext, until: int, page: int = 1000) -> AsyncIterator[Item]:
    """Scheduled jobs that are due by an instant, earliest first."""
    span = SortRange(most=millis_key(until) + AFTER_ALL)
    return context.table.walk(context.prefix + DUE, span, index=PLACE, page=page)


async def next_due(context: ShardContext) -> Item | None:
    page = await context.table.query(context.prefix + DUE, index=PLACE, limit=1)
    return next(iter(page.items), None)


def in_line(context: ShardContext, key: BacklogKey, page: int = 200) -> AsyncIterator[Item]:
    """Queued jobs of one queue and type without a ticket: highest priority first, then oldest first."""
    span = SortRange(prefix=line_prefix(key.queue, key.type))
    return context.table.walk(context.prefix + LINE, span, index=PLACE, page=page)


async def heads_of_lines(context: ShardContext, *, by_priority: bool = False) -> AsyncIterator[Item]:
    """The first job of each queue and type (and priority) in line, whatever stands behind it."""
    span = SortRange()
    while True:
        page = await context.table.query(context.prefix + LINE, span, index=PLACE, limit=1)
        if not page.items:
            return
        (first,) = page.items
        yield first
        behind = after_line(first["q"], first["t"])
        if by_priority:
            behind = f"{line_prefix(first['q'], first['t'])}{9 - first['pr']}{AFTER_ALL}"
        span = SortRange(after=behind)


def away(context: ShardContext) -> AsyncIterator[Item]:
    """Queued jobs with a ticket, and running ones, oldest first."""
    return context.table.walk(context.prefix + AWAY, index=PLACE)


async def walk_ticketed(context: ShardContext) -> AsyncIterator[Item]:
    async for item in away(context):
        if item["st"] == State.QUEUED:
            yield item


async def walk_running(context: ShardContext) -> AsyncIterator[Item]:
    async for item in away(context):
        if item["st"] == State.RUNNING:
            yield item


def is_open(item: Item, now: int) -> bool:
    """Whether a job in line has not expired."""
    expires: Any = item.get("ex")
    return expires is None or expires > now


def urgency(item: Item) -> tuple[int, str]:
    """By which jobs of a queue are ordered."""
    return 9 - item["pr"], item["sq"]


def backlog_key(item: Item) -> BacklogKey:
    return BacklogKey(item["q"], item["t"])
