"""Retention: ended jobs and lost workers leave after their time, and objects without a link are swept."""

import re
from datetime import timedelta

from penstock.engine import Engine
from penstock.engine.files import job_prefix
from penstock.model.ids import JobId, shard_of
from penstock.model.job import Job, Retention
from penstock.model.timing import seconds
from penstock.scheduler.worker_pruner import WorkerPruner
from penstock.store import Shard

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
