"""The reaper: leases that ran out, jobs that expired, tickets that were lost."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.engine import Engine
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.ids import JobId
from penstock.model.lifecycle import Event
from penstock.model.timing import seconds
from penstock.store import Shard

REAP_JOBS = 1000
OVERDUE_TICKETS = 20_000
"""How many are looked at in one step; the next one goes on behind them."""

ZERO = timedelta(0)
RETURN_WITHIN = seconds(5.0)
"""How long a shard has to answer before leases are taken back: a worker that could not reach it asks every 2 s."""


class Reaper:
    """One step takes back a bounded number of each from a shard and says when to look again.

    A lease may have run out because nobody could renew it: no server ran, or the shard did not answer. So after its
    start, and whenever the shard was away, it first lets the workers that are still there be heard.
    """

    def __init__(self, engine: Engine, shard: Shard, patience: timedelta = RETURN_WITHIN) -> None:
        self._engine = engine
        self._shard = shard
        self._patience = patience.total_seconds()
        self._every = seconds(engine.settings.timing.reap_seconds)
        self._answers_since: float | None = None
        self._after: JobId | None = None

    async def step(self) -> timedelta:
        try:
            return await self._step()
        except Unavailable:
            self._answers_since = None
            raise

    async def _step(self) -> timedelta:
        more = [await self._reap(self._shard.expire)]
        if self._was_heard():
            more.append(await self._reap(self._shard.reclaim))
        if (lost := await self._lost_tickets()) and await self._shard.expire_tickets(lost):
            self._engine.tickets.wake.set()
        return ZERO if any(more) else self._every

    def _was_heard(self) -> bool:
        """Whether the shard has answered for long enough that every worker could renew its leases."""
        now = self._engine.clock.monotonic()
        if self._answers_since is None:
            self._answers_since = now
        return now >= self._answers_since + self._patience

    async def _lost_tickets(self) -> list[JobId]:
        """The jobs whose ticket is overdue and not in the broker: whoever took it, or was to post it, was lost."""
        overdue = await self._shard.overdue_tickets(self._after, OVERDUE_TICKETS)
        self._after = overdue[-1] if len(overdue) == OVERDUE_TICKETS else None
        try:
            held = await self._engine.broker.find_held(overdue) if overdue else set()
        except BrokerUnavailable:
            # The dispatcher sees to all tickets of a broker that is away.
            return []
        return [job for job in overdue if job not in held]

    async def _reap(self, move: Callable[[int], Awaitable[list[Event]]]) -> bool:
        """Apply a move; True when there may be more to do."""
        events = await move(REAP_JOBS)
        self._engine.publish_events(events)
        return len(events) == REAP_JOBS
