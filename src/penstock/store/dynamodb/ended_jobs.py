"""What is recorded of jobs after they have ended: counters, and the time to live of the items beside their heads.

Counters are kept by queue, type, state and span of time; each process adds to them about once a second. They are not
exact: what a process has counted and not yet written is lost with it. The counters of a span go with the last of its
jobs; a span is an eighth of the retention, and a day at most.

Items beside a head get its time to live after the move that ended the job, never before. If a process dies in between,
they stay for ever, which costs their storage and nothing else: a key whose job is gone is free.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from penstock.model.clock import SystemClock, millis
from penstock.model.errors import Unavailable
from penstock.model.job import Count, Retention
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.dynamodb.conditions import Update
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import SEPARATOR, idempotency_key, millis_key, params_key
from penstock.store.dynamodb.statements import Swap
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.values import ItemKey

LONGEST_SPAN = 86_400_000
SPANS = 8
WRITE_EVERY = timedelta(seconds=1)

logger = logging.getLogger(__name__)


class EndedCounts:
    """How many jobs of this shard ended in which state and are still kept."""

    def __init__(self, table: DynamoTable, prefix: str, retention: Retention) -> None:
        self._table = table
        self._partition = f"{prefix}ended"
        self._retention = retention
        self._pending: Counter[str] = Counter()
        self._timer = SystemClock()
        self._written_at = self._timer.monotonic()
        self._writing: asyncio.Future[None] | None = None

    def add(self, heads: Sequence[Head]) -> None:
        """Count jobs that have just ended."""
        for head in heads:
            if head.state in TERMINAL:
                self._pending[self._name(head)] += 1
        if self._pending and self._timer.monotonic() - self._written_at >= WRITE_EVERY.total_seconds():
            self._writing = asyncio.ensure_future(self._write(self._writing))

    def _name(self, head: Head) -> str:
        span = _span(self._kept(head.state))
        start = (head.course.completed or 0) // span * span
        return SEPARATOR.join((millis_key(start), head.queue, head.type, head.state.value))

    def _kept(self, state: State) -> int:
        return millis(self._retention.succeeded if state is State.SUCCEEDED else self._retention.failed)

    async def write(self) -> None:
        """Add what was counted up to now."""
        self._writing = asyncio.ensure_future(self._write(self._writing))
        await self._writing

    async def _write(self, before: "asyncio.Future[None] | None") -> None:
        if before is not None:
            await before
        pending, self._pending = self._pending, Counter()
        self._written_at = self._timer.monotonic()
        for name, jobs in pending.items():
            await self._add(name, jobs)

    async def _add(self, name: str, jobs: int) -> None:
        start, _, _, state = name.split(SEPARATOR)
        kept = self._kept(State(state))
        ttl = -(-(int(start) + _span(kept) + kept) // 1000)
        try:
            await self._table.update(Update(ItemKey(self._partition, name), {"ttl": ttl}, adds={"jobs": jobs}))
        except Unavailable as error:
            logger.warning("%d ended jobs may not be counted: %s", jobs, error)

    async def read(self) -> list[Count]:
        """What all processes have counted, those of this one included."""
        await self.write()
        now = self._table.clock.now() // 1000
        total: Counter[tuple[str, str, str]] = Counter()
        async for item in self._table.walk(self._partition):
            if item["ttl"] > now:
                _, queue, type_name, state = item["sk"].split(SEPARATOR)
                total[queue, type_name, state] += item["jobs"]
        return [Count(queue, type_name, State(state), jobs) for (queue, type_name, state), jobs in total.items()]


def _span(kept: int) -> int:
    return max(1, min(LONGEST_SPAN, kept // SPANS))


async def expire_beside(table: DynamoTable, prefix: str, heads: Sequence[Head]) -> None:
    """Let the items beside these heads expire with them, as far as the jobs have ended."""
    swaps = [swap for head in heads if head.state in TERMINAL for swap in _expiries(prefix, head)]
    if swaps:
        await table.execute(swaps)


def _expiries(prefix: str, head: Head) -> Iterator[Swap]:
    ttl = {"ttl": head.ttl}
    if head.origin.key is not None:
        # A key that has passed to another job meanwhile stays as it is.
        yield Swap(idempotency_key(prefix, head.origin.key), ttl, {"job": head.id})
    if head.origin.params_apart:
        yield Swap(params_key(head.id), ttl, {})
    for tag in head.origin.tags:
        yield Swap(ItemKey(f"{prefix}tag#{tag}", f"{head.order}#{head.id}"), ttl, {})
