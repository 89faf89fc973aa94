"""Dispatch: jobs that are due become queued, and queued jobs get tickets as far as the broker's window has room."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from penstock.engine import Engine
from penstock.model.job import Ticket
from penstock.scheduler import plan

PROMOTE_JOBS = 5000
LONGEST_REST = timedelta(seconds=1)
"""How soon a job is seen that another process submitted without waking us."""

AT_ONCE = timedelta(0)


class Dispatcher:
    """One step reads the shard and the broker, plans, applies, and says when to look again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timing = engine.settings.timing
        self._epoch: str | None = None
        self._rates: dict[str, float] = {}
        self._held: Mapping[str, int] = {}
        self._posted: Mapping[str, int] = {}
        self._looked_at = engine.clock.monotonic()

    async def step(self) -> timedelta:
        await self._notice_a_new_broker()
        promoted = await self._engine.store.promote(PROMOTE_JOBS)
        self._engine.moved(promoted)
        outlook = await self._engine.store.outlook()
        tickets = await self._dispatch(await self._plan(outlook.backlog))
        more = len(promoted) == PROMOTE_JOBS or len(tickets) >= plan.PASS_JOBS
        return AT_ONCE if more else await self._rest(outlook.next_due_at)

    async def _notice_a_new_broker(self) -> None:
        """Another epoch means that tickets are lost: every queued job needs a new one."""
        epoch = await self._engine.broker.epoch()
        if epoch != self._epoch:
            await self._engine.store.lapse(everything=True)
            self._epoch = epoch

    async def _plan(self, backlog: frozenset[str]) -> dict[str, int]:
        depths = await self._engine.broker.depths()
        now = self._engine.clock.monotonic()
        self._rates = plan.drain_rates(self._rates, self._held, self._posted, depths, now - self._looked_at)
        self._held, self._looked_at = depths, now
        allowed = plan.windows(self._rates, self._timing)
        self._engine.tickets.learn(backlog, allowed)
        paused = (await self._engine.catalog.read()).paused
        return plan.room(backlog, paused, depths, allowed, self._timing.window_jobs)

    async def _dispatch(self, room: Mapping[str, int]) -> list[Ticket]:
        tickets = await self._engine.store.dispatch(room, self._engine.tickets.ticket_for) if room else []
        self._posted = Counter(ticket.queue for ticket in tickets)
        await self._engine.tickets.publish(tickets)
        return tickets

    async def _rest(self, next_due_at: datetime | None) -> timedelta:
        if next_due_at is None:
            return LONGEST_REST
        return min(LONGEST_REST, max(AT_ONCE, next_due_at - await self._engine.store.now()))
