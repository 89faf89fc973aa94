"""The sweepers of a shard: the reaper acts on deadlines that have passed, the pruner removes what is old."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from penstock.engine import Engine
from penstock.engine.files import job_prefix
from penstock.engine.type_fit import SILENT_FOR, note_departures
from penstock.model.clock import EARLIEST, seconds
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.ids import JobId, shard_of
from penstock.model.job import Job, Pruned, Retention
from penstock.model.journal import EventRetention
from penstock.model.lifecycle import Event
from penstock.model.workers import Seen
from penstock.store import Shard

REAP_JOBS = 1000
OVERDUE_TICKETS = 20_000
"""How many are checked in one step; the next step goes on after them."""

ZERO = timedelta(0)
RETURN_WITHIN = seconds(5.0)
"""How long a shard must have answered before leases are reclaimed: a worker that lost it asks every 2 s."""


class Reaper:
    """Expires jobs, reclaims leases and expires lost tickets of a shard, a bounded number of each in one step.

    A lease may have run out because its worker could not renew it: no server ran, or the shard did not answer. So after
    a start, and after each outage of the shard, it first gives the workers time to renew.
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
        if self._answers_long_enough():
            more.append(await self._reap(self._shard.reclaim))
        if (lost := await self._read_lost_tickets()) and await self._shard.expire_tickets(lost):
            self._engine.tickets.wake.set()
        return ZERO if any(more) else self._every

    def _answers_long_enough(self) -> bool:
        """Whether the shard has answered for long enough that every worker could renew its leases."""
        now = self._engine.clock.monotonic()
        if self._answers_since is None:
            self._answers_since = now
        return now >= self._answers_since + self._patience

    async def _read_lost_tickets(self) -> list[JobId]:
        """The jobs whose ticket is overdue and not in the broker: the process that took or published it was lost.

        A broker that does not know what it holds leaves the decision to the deadline.
        """
        overdue = await self._shard.overdue_tickets(self._after, OVERDUE_TICKETS)
        self._after = overdue[-1] if len(overdue) == OVERDUE_TICKETS else None
        try:
            finds_held = self._engine.broker.capabilities.finds_held
            held = await self._engine.broker.find_held(overdue) if overdue and finds_held else set()
        except BrokerUnavailable:
            # The dispatcher expires all tickets of a broker that is down.
            return []
        return [job for job in overdue if job not in held]

    async def _reap(self, move: Callable[[int], Awaitable[list[Event]]]) -> bool:
        """Apply a move; whether there may be more to do."""
        events = await move(REAP_JOBS)
        self._engine.signals.publish_events(events)
        return len(events) == REAP_JOBS


PRUNE_JOBS = 500
PRUNE_ENTRIES = 500
PRUNE_INTERVAL = timedelta(minutes=1)
BATCH_PAUSE = timedelta(milliseconds=50)
"""Between two full passes, so that removing millions of jobs does not delay the calls of workers."""

NOTHING = Pruned(0, ())
SWEEP_INTERVAL = timedelta(hours=1)
_OF_A_JOB = re.compile(r"^jobs/(?P<job>[0-9a-f-]{36})/(?:(?P<fence>\d+)/)?")


class Pruner:
    """One step removes a bounded number of a shard's ended jobs, with the objects that they own, and old events.

    With `sweep_objects` it also looks through the object store, once an hour, for objects that no job owns.
    """

    def __init__(self, engine: Engine, shard: Shard, *, sweep_objects: bool = True) -> None:
        self._engine = engine
        self._shard = shard
        retention = engine.settings.retention
        self._keep = Retention(seconds(retention.succeeded_seconds), seconds(retention.failed_seconds))
        self._events = EventRetention(seconds(retention.events_seconds), seconds(retention.history_seconds))
        self._orphaned = seconds(retention.upload_seconds)
        self._sweep_objects = sweep_objects
        self._swept_at: float | None = None
        self._workers = WorkerPruner(engine, shard)

    async def step(self) -> timedelta:
        pruned = NOTHING if self._shard.capabilities.rows_expire else await self._shard.prune(self._keep, PRUNE_JOBS)
        for job in pruned.owners:
            await self._engine.objects.delete(job_prefix(job))
        if self._sweep_objects:
            await self._sweep_when_due()
        await self._engine.shards.forget_former_rings(self._keep)
        all_forgotten = await self._workers.step()
        events = await self._shard.prune_journal(self._events, PRUNE_ENTRIES)
        all_pruned = pruned.jobs < PRUNE_JOBS and events < PRUNE_ENTRIES
        return PRUNE_INTERVAL if all_pruned and all_forgotten else BATCH_PAUSE

    async def _sweep_when_due(self) -> None:
        now = self._engine.clock.monotonic()
        if self._swept_at is None or now - self._swept_at >= SWEEP_INTERVAL.total_seconds():
            self._swept_at = now
            await self.sweep()

    async def sweep(self) -> int:
        """Delete old uploads, and old objects whose job is gone or whose attempt lost; how many."""
        swept = 0
        async for key in self._engine.objects.scan("uploads", self._orphaned):
            swept += await self._engine.objects.delete(key)
        async for key in self._engine.objects.scan("jobs", self._orphaned):
            if await self._is_orphan(key):
                swept += await self._engine.objects.delete(key)
        return swept

    async def _is_orphan(self, key: str) -> bool:
        """Whether an object of this shard's jobs is not linked. Other shards have pruners of their own."""
        named = _OF_A_JOB.match(key)
        if named is None or shard_of(JobId(named["job"])) != self._shard.shard:
            return False
        (job,) = await self._shard.get([JobId(named["job"])])
        return job is None or (job.ended and named["fence"] is not None and key not in _linked(job))


def _linked(job: Job) -> set[str]:
    links = [file.object for file in job.outputs] + ([job.result_object] if job.result_object else [])
    return {link.key for link in links}


LOST_READ = 1000
"""Most workers lost since the last step that one step reads; after a start, the latest of all lost ones."""

FORGOTTEN_AT_ONCE = 100
QUIET_FOR = SILENT_FOR + timedelta(seconds=10)
"""After this much silence a worker is lost, whatever the difference between clocks."""


class WorkerPruner:
    """One step notes when lost workers last had their types, and forgets workers that are past their retention."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        self._keep = seconds(engine.settings.retention.worker_seconds)
        self._noted_until: datetime = EARLIEST

    async def step(self) -> bool:
        """Whether all workers past their retention are forgotten."""
        now = await self._shard.now()
        await self._note_lost(now - QUIET_FOR)
        forgotten = await self._shard.prune_workers(now - self._keep, FORGOTTEN_AT_ONCE)
        # Some may not be noted yet: while no scheduler ran, more workers were lost than one step reads.
        await note_departures(self._engine.catalog, forgotten)
        return len(forgotten) < FORGOTTEN_AT_ONCE

    async def _note_lost(self, until: datetime) -> None:
        if until <= self._noted_until:
            return
        lost = await self._shard.workers(Seen(self._noted_until, until), LOST_READ)
        await note_departures(self._engine.catalog, lost)
        self._noted_until = until
