"""The history of queues and types, over all shards."""

from datetime import datetime, timedelta

from penstock.config import EventSettings
from penstock.engine.parts import EngineParts
from penstock.model.errors import EventsNotKept, StoreUnavailable, Unavailable
from penstock.model.history import describe_steps, plan_steps
from penstock.model.ids import ShardId
from penstock.model.journal import History, HistoryFilter
from penstock.model.wire.history import HistoryReport
from penstock.store import Shard
from penstock.store.answers import gather_answers

USUAL_SPAN = timedelta(hours=1)
PATIENCE = timedelta(seconds=2)
"""How long slower shards are waited for, once the first has answered."""


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
        found, missing = await self._ask(HistoryFilter(steps.since, steps.until, queue))
        return HistoryReport(
            since=steps.since,
            until=steps.until,
            step_seconds=steps.step.total_seconds(),
            queue=queue,
            type=type_name,
            steps=tuple(describe_steps(found, steps, type_name)),
            missing_shards=missing,
        )

    async def _ask(self, where: HistoryFilter) -> tuple[list[History], tuple[ShardId, ...]]:
        shards = self._store.shards()
        answers = await gather_answers([_read(shard, where) for shard in shards], PATIENCE)
        found = [answer for answer in answers if not isinstance(answer, Unavailable)]
        away = {one.shard for one, answer in zip(shards, answers, strict=True) if isinstance(answer, Unavailable)}
        if not found:
            raise StoreUnavailable("no shard answers; retry in a moment")
        return found, tuple(sorted(away | set(self._store.unavailable())))


async def _read(shard: Shard, where: HistoryFilter) -> History:
    await shard.number_entries()
    return await shard.read_history(where)


def require_events(settings: EventSettings) -> None:
    """Raise EventsNotKept where the settings say that no journal is kept."""
    if not settings.keep:
        raise EventsNotKept("events are not kept here: set events.keep = true, for all processes, to have them")
