"""The reaper: leases that ran out, jobs that expired, tickets that were lost."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.engine import Engine
from penstock.model.lifecycle import Event
from penstock.model.timing import seconds
from penstock.store import Shard

REAP_JOBS = 1000
AT_ONCE = timedelta(0)


class Reaper:
    """One step takes back a bounded number of each from a shard and says when to look again."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        self._every = seconds(engine.settings.timing.reap_seconds)

    async def step(self) -> timedelta:
        more = [await self._reap(self._shard.reclaim), await self._reap(self._shard.expire)]
        if await self._shard.lapse():
            self._engine.tickets.wake.set()
        return AT_ONCE if any(more) else self._every

    async def _reap(self, move: Callable[[int], Awaitable[list[Event]]]) -> bool:
        """Apply a move; True when there may be more to do."""
        events = await move(REAP_JOBS)
        self._engine.moved(events)
        return len(events) == REAP_JOBS
