"""Lost workers: when one last had a type is kept with the type, and after their retention they are forgotten."""

from datetime import datetime, timedelta

from penstock.engine import Engine
from penstock.engine.type_fit import SILENT_FOR, note_departures
from penstock.model.clock import EARLIEST, seconds
from penstock.model.workers import Seen
from penstock.store import Shard

LOST_READ = 1000
"""How many of those lost since the last step are looked at; after a start, the last ones of all that are there."""

FORGOTTEN_AT_ONCE = 100
QUIET_FOR = SILENT_FOR + timedelta(seconds=10)
"""After this much silence a worker is lost by every clock."""


class WorkerPruner:
    """One step looks at the workers that a shard has lost since the one before, and forgets some that are old."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        self._keep = seconds(engine.settings.retention.worker_seconds)
        self._noted_until: datetime = EARLIEST

    async def step(self) -> bool:
        """Whether all that are old are forgotten."""
        now = await self._shard.now()
        await self._note_lost(now - QUIET_FOR)
        forgotten = await self._shard.prune_workers(now - self._keep, FORGOTTEN_AT_ONCE)
        # Of some it may not be noted yet: while no scheduler ran, more were lost than one step looks at.
        await note_departures(self._engine.catalog, forgotten)
        return len(forgotten) < FORGOTTEN_AT_ONCE

    async def _note_lost(self, until: datetime) -> None:
        if until <= self._noted_until:
            return
        lost = await self._shard.workers(Seen(self._noted_until, until), LOST_READ)
        await note_departures(self._engine.catalog, lost)
        self._noted_until = until
