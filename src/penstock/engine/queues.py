"""Queues and workers as operators see them, and pausing queues."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

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
"""Most workers in a list that were lost long ago: their rows may be large."""


class Queues:
    """Counts, age and pause of each queue; the workers."""

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
        """Stop or resume the claims of a queue's jobs; running jobs go on."""
        await self._catalog.pause(name, paused=paused)
        self._tickets.pauses_changed()
        return await self.get(name) if paused else await self._read_resumed(name)

    async def _read_resumed(self, name: str) -> QueueItem:
        try:
            return await self.get(name)
        except NotFound:
            return QueueItem(name=name, paused=False, jobs={}, oldest_seconds=None)

    async def counts(self) -> Sequence[Count]:
        """Jobs by queue, type and state; jobs that wait for another worker are counted under their own type."""
        total: Counter[tuple[str, str, State]] = Counter()
        for count in await self._store.counts():
            total[count.queue, plain_type(count.type), count.state] += count.jobs
        return [Count(*key, jobs) for key, jobs in total.items()]

    async def workers(self) -> list[Worker]:
        """The workers seen within RECENT that have not left; those silent for too long as lost."""
        now = await self._store.now()
        return _with_lost(await self._store.workers(Seen(after=now - RECENT)), now)

    async def list_workers(self) -> list[Worker]:
        """By id: the workers seen within RECENT, and of the lost ones the last LOST_LISTED."""
        recent, now = await self.workers(), await self._store.now()
        earlier = await self._store.workers(Seen(until=now - RECENT), LOST_LISTED)
        found = {worker.id: worker for worker in (*_with_lost(earlier, now), *recent)}
        return [found[name] for name in sorted(found)]

    async def drain_worker(self, name: str, patience: timedelta | None) -> Worker:
        """Ask a worker to drain within `patience`, or as long as it takes; NotFound if none of that name is there."""
        known = await self._store.ask_to_drain([name], patience)
        found = [worker for worker in await self.list_workers() if worker.id == name] if known else []
        if not found:
            raise NotFound(f"there is no worker {name!r}; see those that are there with: penstock workers")
        return found[0]

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
