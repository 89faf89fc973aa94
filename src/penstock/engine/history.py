"""The history of queues and types, over all shards."""

from datetime import datetime, timedelta

from penstock.config import EventSettings
from penstock.engine.parts import EngineParts
from penstock.engine.shards import ask_shards
from penstock.model.errors import EventsNotKept
from penstock.model.history import describe_steps, plan_steps
from penstock.model.journal import History, HistoryFilter
from penstock.model.wire.history import HistoryReport
from penstock.store import Shard

USUAL_SPAN = timedelta(hours=1)


class Histories:
    """Reads what each shard has counted, and adds it up."""

    def __init__(self, parts: EngineParts) -> None:
        self._store = parts.store
        self._settings = parts.settings.events

    async def read(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        queue: str | None = None,
        type_name: str | None = None,
    ) -> HistoryReport:
        """The steps from `since` (an hour before `until`) to `until` (now), of all jobs or of a queue or type."""
        require_events(self._settings)
        now = await self._store.now()
        until = until or now
        steps = plan_steps(since or until - USUAL_SPAN, until, step, now)
        # Types are compared here: those of jobs that wait for another worker have names of their own in the store.
        where = HistoryFilter(steps.since, steps.until, queue)
        found, missing = await ask_shards(self._store, lambda shard: _read(shard, where))
        return HistoryReport(
            since=steps.since,
            until=steps.until,
            step_seconds=steps.step.total_seconds(),
            queue=queue,
            type=type_name,
            steps=tuple(describe_steps(found, steps, type_name)),
            missing_shards=missing,
        )


async def _read(shard: Shard, where: HistoryFilter) -> History:
    await shard.number_entries()
    return await shard.read_history(where)


def require_events(settings: EventSettings) -> None:
    """Raise EventsNotKept where the settings say that no journal is kept."""
    if not settings.keep:
        raise EventsNotKept("events are not kept here: set events.keep = true, for all processes, to have them")
