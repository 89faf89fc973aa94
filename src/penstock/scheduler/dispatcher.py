"""Dispatch: jobs that are due become queued, and queued jobs get tickets as far as the broker's window has room."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from penstock.engine import Engine
from penstock.model.clock import seconds
from penstock.model.errors import BrokerUnavailable
from penstock.model.job import BacklogKey, Ticket
from penstock.model.notices import Notice
from penstock.store import Shard

PASS_JOBS = 2000
"""Most tickets of one queue and type in one pass, so that one long backlog does not hold up the others."""


def window_room(
    backlog: Iterable[BacklogKey], paused: frozenset[str], depths: Mapping[BacklogKey, int], window: int
) -> dict[BacklogKey, int]:
    """By queue and type of the jobs without a ticket, how many may get one now; those without room are left out."""
    free = {key: min(PASS_JOBS, window - depths.get(key, 0)) for key in backlog if key.queue not in paused}
    return {key: jobs for key, jobs in free.items() if jobs > 0}


logger = logging.getLogger("penstock.scheduler")

PROMOTE_JOBS = 5000
ZERO = timedelta(0)
KEPT_FOR = timedelta(seconds=30)
"""How long a broker that redelivers may be unavailable before its tickets are given up."""

EPOCH = "epoch"
"""The kind of notice that holds, by shard number, the epoch of the broker that its tickets were published to."""


class Dispatcher:
    """One step reads a shard and the broker, plans, applies, and returns the delay until the next step."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        self._longest_rest = seconds(engine.settings.timing.dispatch_seconds)
        self._epoch: str | None = None
        self._lost_at: float | None = None
        self._expired = False

    async def step(self) -> timedelta:
        # Where a dispatch promotes, only jobs that find no room are promoted by themselves.
        fused = self._shard.capabilities.dispatches_due
        promoted = 0 if fused else await self._promote()
        try:
            rest = await self._dispatch_backlog()
        except BrokerUnavailable as error:
            rest = await self._expire_all_once(error)
        promoted += await self._promote() if fused else 0
        return ZERO if promoted == PROMOTE_JOBS else rest

    async def _promote(self) -> int:
        promoted = await self._shard.promote(PROMOTE_JOBS)
        self._engine.signals.publish_events(promoted)
        return len(promoted)

    async def _dispatch_backlog(self) -> timedelta:
        """Publish tickets for the backlog as far as the window has room; the delay until the next step."""
        await self._check_epoch()
        summary = await self._shard.due_summary()
        room = await self._read_room(summary.backlog | summary.due)
        published = Counter(ticket.backlog_key for ticket in await self._dispatch(room))
        self._lost_at, self._expired = None, False
        # Where there was more room than jobs, no job is left without a ticket.
        left = frozenset(key for key in summary.backlog | summary.due if published[key] >= room.get(key, 0))
        self._engine.tickets.record_backlog(self._shard.shard, left)
        if published.total() >= PASS_JOBS:
            return ZERO
        return await self._delay_until(summary.next_due_at)

    async def _check_epoch(self) -> None:
        """If the broker has a new epoch, its tickets are lost: expire them, so that every queued job gets another.

        Where a loss does not show in the epoch, the deadlines of the tickets tell it.
        """
        if not self._engine.broker.capabilities.epochs:
            return
        epoch = await self._engine.broker.epoch()
        if self._epoch is None:
            self._epoch = await self._read_epoch()
        if epoch != self._epoch:
            await self._shard.expire_tickets(None)
            await self._shard.put_notices(
                [Notice(EPOCH, str(self._shard.shard), epoch.encode(), await self._shard.now())]
            )
            self._epoch = epoch

    async def _read_epoch(self) -> str:
        """The epoch that the shard's tickets were last published under, by its notice; empty if there is none."""
        about = (EPOCH, str(self._shard.shard))
        kept = [one.value for one in await self._shard.notices() if one.about == about]
        return (kept[0] or b"").decode() if kept else ""

    async def _read_room(self, backlog: frozenset[BacklogKey]) -> dict[BacklogKey, int]:
        depths = await self._engine.broker.depths(backlog) if backlog else {}
        paused = (await self._engine.catalog.read()).paused
        return window_room(backlog, paused, depths, self._engine.settings.timing.window_jobs)

    async def _dispatch(self, room: Mapping[BacklogKey, int]) -> list[Ticket]:
        tickets = self._engine.tickets
        fused = self._shard.capabilities.dispatches_due
        return await self._shard.dispatch(room, tickets.ticket_for, tickets.post, due=fused) if room else []

    async def _expire_all_once(self, error: BrokerUnavailable) -> timedelta:
        """Expire the tickets that the broker holds, so that workers can claim their jobs from the store meanwhile.

        With a broker that redelivers, only in an outage that lasts: it keeps its tickets, and new ones cost writes.
        """
        now = self._engine.clock.monotonic()
        if self._lost_at is None:
            logger.warning("%s; workers take jobs of shard %d from the store", error, self._shard.shard)
            self._lost_at = now
        patience = KEPT_FOR if self._engine.broker.capabilities.redelivers else ZERO
        if not self._expired and now - self._lost_at >= patience.total_seconds():
            await self._shard.expire_tickets(None)
            self._expired = True
        return self._longest_rest

    async def _delay_until(self, next_due_at: datetime | None) -> timedelta:
        if next_due_at is None:
            return self._longest_rest
        return min(self._longest_rest, max(ZERO, next_due_at - await self._shard.now()))
