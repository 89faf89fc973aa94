"""Queues and workers: what an operator looks at and pauses."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from penstock.engine.catalog import RECENT, Catalog
from penstock.engine.type_fit import is_silent
from penstock.engine.window import Tickets
from penstock.model.declarations import plain_type
from penstock.model.errors import NotFound
from penstock.model.job import Count
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import QueueItem
from penstock.model.workers import Seen, Worker, WorkerState
from penstock.store import Store

LOST_LISTED = 100
"""Most workers that a list shows of those that were lost long ago: each may say much about itself."""


class Queues:
    """Depth, age and pause of each queue; the workers."""

    def __init__(self, store: Store, catalog: Catalog, tickets: Tickets) -> None:
        self._store = store
        self._catalog = catalog
        self._tickets = tickets

    async def get(self, name: str) -> QueueItem:
        for queue in await self.list():
            if queue.name == name:
                return queue
        raise NotFound(f"there is no queue {name!r}: no job, no declared type and no pause has that name")

    async def pause(self, name: str, *, paused: bool) -> QueueItem:
        """Stop or resume handing out a queue's jobs; running ones go on."""
        await self._catalog.pause(name, paused=paused)
        self._tickets.pauses_changed()
        return await self.get(name) if paused else await self._read_resumed(name)

    async def _read_resumed(self, name: str) -> QueueItem:
        try:
            return await self.get(name)
        except NotFound:
            return QueueItem(name=name, paused=False, jobs={}, oldest_seconds=None)

    async def counts(self) -> Sequence[Count]:
        """Jobs by queue, type and state; those that wait for another worker among the others of their type."""
        total: Counter[tuple[str, str, State]] = Counter()
        for count in await self._store.counts():
            total[count.queue, plain_type(count.type), count.state] += count.jobs
        return [Count(*about, jobs) for about, jobs in total.items()]

    async def workers(self) -> list[Worker]:
        """The workers that were heard from lately and have not said goodbye; those silent for too long as lost."""
        now = await self._store.now()
        return _with_lost(await self._store.workers(Seen(after=now - RECENT)), now)

    async def list_workers(self) -> list[Worker]:
        """By id, those heard from lately, and of the others that are not forgotten yet those that were lost last."""
        recent, now = await self.workers(), await self._store.now()
        earlier = await self._store.workers(Seen(until=now - RECENT), LOST_LISTED)
        found = {worker.id: worker for worker in (*_with_lost(earlier, now), *recent)}
        return [found[name] for name in sorted(found)]

    async def list(self) -> list[QueueItem]:
        """Every queue that has jobs, a declared type or a pause, by name."""
        jobs: defaultdict[str, dict[State, int]] = defaultdict(dict)
        for count in await self._store.counts():
            states = jobs[count.queue]
            states[count.state] = states.get(count.state, 0) + count.jobs
        reading = await self._catalog.read()
        names = set(jobs) | reading.paused | {declared.queue for declared in reading.types.values()}
        oldest, now = await self._store.oldest_due(), await self._store.now()
        ages = {queue: max(0.0, (now - due).total_seconds()) for queue, due in oldest.items()}
        return [
            QueueItem(name=name, paused=name in reading.paused, jobs=jobs[name], oldest_seconds=ages.get(name))
            for name in sorted(names)
        ]


def _with_lost(workers: Iterable[Worker], now: datetime) -> list[Worker]:
    return [replace(one, state=WorkerState.LOST) if is_silent(one, now) else one for one in workers]
