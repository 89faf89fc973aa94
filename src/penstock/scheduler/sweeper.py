"""The reaper: leases that ran out, jobs that expired, tickets that were lost."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.engine import Engine
from penstock.engine.files import job_prefix
from penstock.model.clock import seconds
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.ids import JobId, shard_of
from penstock.model.job import Job, Retention
from penstock.model.lifecycle import Event
from penstock.scheduler.worker_pruner import WorkerPruner
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
        self._engine.signals.publish_events(events)
        return len(events) == REAP_JOBS


PRUNE_JOBS = 500
PRUNE_INTERVAL = timedelta(minutes=1)
BATCH_PAUSE = timedelta(milliseconds=50)
"""Between two full passes, so that removing millions of jobs leaves room for the living."""

SWEEP_INTERVAL = timedelta(hours=1)
_OF_A_JOB = re.compile(r"^jobs/(?P<job>[0-9a-f-]{36})/(?:(?P<fence>\d+)/)?")


class Pruner:
    """One step removes a bounded number of a shard's jobs, with what they own."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard
        retention = engine.settings.retention
        self._keep = Retention(seconds(retention.succeeded_seconds), seconds(retention.failed_seconds))
        self._orphaned = seconds(retention.upload_seconds)
        self._swept_at: float | None = None
        self._workers = WorkerPruner(engine, shard)

    async def step(self) -> timedelta:
        pruned = await self._shard.prune(self._keep, PRUNE_JOBS)
        for job in pruned.owners:
            await self._engine.objects.delete(job_prefix(job))
        await self._sweep_when_due()
        await self._engine.shards.forget_former_rings(self._keep)
        forgot_all = await self._workers.step()
        return PRUNE_INTERVAL if pruned.jobs < PRUNE_JOBS and forgot_all else BATCH_PAUSE

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
            if await self._orphan(key):
                swept += await self._engine.objects.delete(key)
        return swept

    async def _orphan(self, key: str) -> bool:
        """Only of this shard's jobs: each shard has its pruner, and one that cannot be asked keeps its objects."""
        named = _OF_A_JOB.match(key)
        if named is None or shard_of(JobId(named["job"])) != self._shard.shard:
            return False
        (job,) = await self._shard.get([JobId(named["job"])])
        return job is None or (job.ended and named["fence"] is not None and key not in _linked(job))


def _linked(job: Job) -> set[str]:
    links = [file.object for file in job.outputs] + ([job.result_object] if job.result_object else [])
    return {link.key for link in links}
