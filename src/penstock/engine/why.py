"""Why a job waits, in words. Pure."""

from datetime import datetime

from penstock.engine.catalog import Reading
from penstock.engine.coming import is_coming
from penstock.engine.queues import SILENT_FOR
from penstock.model.job import Job
from penstock.model.lifecycle import State
from penstock.model.workers import Worker, WorkerState

DUE_LATER = "due later"
WAITS_TO_RETRY = "waiting to try again"
QUEUE_PAUSED = "queue paused"
SCALING_UP = "scaling up"
NO_WORKER = "no worker runs this type"
NO_ROOM = "waiting for a free worker"
ASKED_TO_STOP = "asked to cancel"
"""Every reason a job can give while it has not ended; the documentation lists them."""


def why_it_waits(job: Job, reading: Reading, now: datetime) -> str | None:
    """One of the reasons above for a job that waits or was asked to stop; None otherwise."""
    match job.state:
        case State.SCHEDULED:
            return WAITS_TO_RETRY if job.attempt else DUE_LATER
        case State.QUEUED:
            return _why_queued(job, reading, now)
        case State.RUNNING:
            return ASKED_TO_STOP if job.cancel_requested_at else None
        case State.SUCCEEDED | State.FAILED | State.CANCELLED | State.EXPIRED:
            return None


def _why_queued(job: Job, reading: Reading, now: datetime) -> str:
    if job.queue in reading.paused:
        return QUEUE_PAUSED
    if not any(_serves(worker, job, now) for worker in reading.workers):
        return SCALING_UP if is_coming(job.queue, reading.notices.values(), now) else NO_WORKER
    return NO_ROOM


def _serves(worker: Worker, job: Job, now: datetime) -> bool:
    alive = worker.seen_at is not None and now - worker.seen_at <= SILENT_FOR and worker.state is WorkerState.READY
    served = (worker.queues is None or job.queue in worker.queues) and job.queue not in worker.except_queues
    return alive and job.type in worker.types and served
