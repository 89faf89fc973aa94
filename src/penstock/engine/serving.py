"""Which workers could run a job: those that are alive, have its type and serve its queue. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from penstock.engine.catalog import CatalogReading
from penstock.model.job import Job
from penstock.model.workers import Worker, WorkerState

SILENT_FOR = timedelta(seconds=20)
"""A worker not heard from for this long is called lost: more than a lease and a heartbeat."""


def is_silent(worker: Worker, now: datetime) -> bool:
    return worker.seen_at is None or now - worker.seen_at > SILENT_FOR


def servers_of(job: Job, reading: CatalogReading, now: datetime) -> Iterator[Worker]:
    """The workers that take jobs of its type from its queue now."""
    names = reading.handled_as(job.type)
    return (
        worker
        for worker in reading.workers
        if _serves(worker, job, now) and any(name in worker.types for name in names)
    )


def _serves(worker: Worker, job: Job, now: datetime) -> bool:
    alive = worker.state is WorkerState.READY and not is_silent(worker, now)
    return alive and (worker.queues is None or job.queue in worker.queues) and job.queue not in worker.except_queues


def last_had(name: str, reading: CatalogReading) -> datetime | None:
    """When a worker was last known to have a type; None if it was never declared."""
    declared = reading.types.get(name)
    if declared is None:
        return None
    seen = [worker.seen_at for worker in reading.workers if name in worker.types]
    return max(at for at in (declared.declared_at, declared.left_at, *seen) if at is not None)
