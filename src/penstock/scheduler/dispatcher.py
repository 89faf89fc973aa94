"""Dispatch: jobs that are due become queued, and queued jobs get tickets as far as the broker's window has room."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from penstock.engine import Engine
from penstock.model.errors import BrokerUnavailable
from penstock.model.job import BacklogKey, Ticket
from penstock.model.notices import Notice
from penstock.store import Shard

PASS_JOBS = 2000
"""Most tickets of one line in one pass, so that one long backlog does not hold up the others."""


def window_room(
    backlog: Iterable[BacklogKey], paused: frozenset[str], depths: Mapping[BacklogKey, int], window: int
) -> dict[BacklogKey, int]:
    """For each line with jobs that wait for a ticket, how many may get one now; lines without room are left out."""
    free = {line: min(PASS_JOBS, window - depths.get(line, 0)) for line in backlog if line.queue not in paused}
    return {line: jobs for line, jobs in free.items() if jobs > 0}


logger = logging.getLogger("penstock.scheduler")

PROMOTE_JOBS = 5000
LONGEST_REST = timedelta(seconds=1)
"""How soon a job is seen that another process submitted without waking us."""

ZERO = timedelta(0)
EPOCH = "epoch"
"""The kind of notice that says, under a shard's number, which broker's memory its tickets went to."""


class Dispatcher:
    """One step reads a shard and the broker, plans, applies, and says when to look again."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        self._epoch: str | None = None
        self._out_of_reach = False

    async def step(self) -> timedelta:
        promoted = await self._shard.promote(PROMOTE_JOBS)
        self._engine.signals.publish_events(promoted)
        try:
            rest = await self._post()
        except BrokerUnavailable as error:
            rest = await self._without_broker(error)
        return ZERO if len(promoted) == PROMOTE_JOBS else rest

    async def _post(self) -> timedelta:
        """Give tickets to what waits; when to look again."""
        await self._notice_a_new_broker()
        outlook = await self._shard.due_summary()
        room = await self._room(outlook.backlog)
        posted = Counter(ticket.line for ticket in await self._dispatch(room))
        self._out_of_reach = False
        # Where there was more room than jobs, nobody waits any more.
        left = frozenset(line for line in outlook.backlog if posted[line] >= room.get(line, 0))
        self._engine.tickets.record_backlog(self._shard.shard, left)
        if posted.total() >= PASS_JOBS:
            return ZERO
        return await self._until(outlook.next_due_at)

    async def _notice_a_new_broker(self) -> None:
        """Another epoch means that tickets are lost: every queued job needs a new one."""
        epoch = await self._engine.broker.epoch()
        if self._epoch is None:
            self._epoch = await self._known_epoch()
        if epoch != self._epoch:
            await self._shard.expire_tickets(None)
            await self._shard.put_notices(
                [Notice(EPOCH, str(self._shard.shard), epoch.encode(), await self._shard.now())]
            )
            self._epoch = epoch

    async def _known_epoch(self) -> str:
        """The epoch that the shard's tickets went to when somebody last looked; empty if nobody did."""
        about = (EPOCH, str(self._shard.shard))
        kept = [one.value for one in await self._shard.notices() if one.about == about]
        return (kept[0] or b"").decode() if kept else ""

    async def _room(self, backlog: frozenset[BacklogKey]) -> dict[BacklogKey, int]:
        depths = await self._engine.broker.depths()
        paused = (await self._engine.catalog.read()).paused
        return window_room(backlog, paused, depths, self._engine.settings.timing.window_jobs)

    async def _dispatch(self, room: Mapping[BacklogKey, int]) -> list[Ticket]:
        tickets = self._engine.tickets
        return await self._shard.dispatch(room, tickets.ticket_for, tickets.post) if room else []

    async def _without_broker(self, trouble: BrokerUnavailable) -> timedelta:
        """Forget the tickets it holds, so that workers can take their jobs from the store meanwhile."""
        if not self._out_of_reach:
            logger.warning("%s; workers take jobs of shard %d from the store", trouble, self._shard.shard)
            await self._shard.expire_tickets(None)
            self._out_of_reach = True
        return LONGEST_REST

    async def _until(self, next_due_at: datetime | None) -> timedelta:
        if next_due_at is None:
            return LONGEST_REST
        return min(LONGEST_REST, max(ZERO, next_due_at - await self._shard.now()))
