"""Why a job waits, in words. Pure."""

from datetime import datetime, timedelta

from penstock.engine.catalog import CatalogReading
from penstock.engine.coming import Prospect, prospect_of
from penstock.engine.fit import fits_a_worker, fits_all
from penstock.engine.serving import last_had, servers_of
from penstock.model.job import Job
from penstock.model.lifecycle import State

DUE_LATER = "due later"
WAITS_TO_RETRY = "waiting to try again"
QUEUE_PAUSED = "queue paused"
SCALING_UP = "scaling up"
NO_WORKER = "no worker runs this type"
NO_WORKER_SINCE = "no worker has run this type since {at}"
NO_AUTOSCALER = "no worker runs this type, and no autoscaler acts for it"
NO_AUTOSCALER_SINCE = "no worker has run this type since {at}, and no autoscaler acts for it"
RETIRED = "this type was retired at {at}"
NO_FIT = "no worker that is up takes these params"
NO_ROOM = "waiting for a free worker"
ASKED_TO_STOP = "asked to cancel"
"""Every reason a job can give while it has not ended; the documentation lists them."""


A_WHILE = timedelta(minutes=2)
"""How long a type may be without a worker before a job says since when: workers come and go."""


class WaitReasons:
    """Why jobs wait, remembered for as long as a reading of the registry counts: most jobs of a type wait alike."""

    def __init__(self) -> None:
        self._reading: CatalogReading | None = None
        self._queued: dict[tuple[str, str], str] = {}

    def find(self, job: Job, reading: CatalogReading, now: datetime) -> str | None:
        """`why_it_waits`. Jobs of one type in one queue share the answer unless it depends on their params."""
        if job.state is not State.QUEUED:
            return why_it_waits(job, reading, now)
        if reading is not self._reading:
            self._reading, self._queued = reading, {}
        known = self._queued.get((job.queue, job.type))
        if known is not None:
            return known
        reason = _why_queued(job, reading, now)
        if reason not in (NO_ROOM, NO_FIT) or fits_all(job, reading, now):
            self._queued[job.queue, job.type] = reason
        return reason


def why_it_waits(job: Job, reading: CatalogReading, now: datetime) -> str | None:
    """One of the reasons above for a job that waits or was asked to stop; None otherwise."""
    match job.state:
        case State.SCHEDULED:
            return _why_scheduled(job, reading, now)
        case State.QUEUED:
            return _why_queued(job, reading, now)
        case State.RUNNING:
            return ASKED_TO_STOP if job.cancel_requested_at else None
        case State.SUCCEEDED | State.FAILED | State.CANCELLED | State.EXPIRED:
            return None


def _why_no_worker(job: Job, reading: CatalogReading, now: datetime) -> str:
    prospect, name = prospect_of(job, reading, now), reading.run_as(job.type)
    if prospect is Prospect.COMING:
        return SCALING_UP
    if (retired_at := reading.retired_at(name)) is not None:
        return RETIRED.format(at=_shown(retired_at))
    since, unattended = last_had(name, reading), prospect is Prospect.NO_AUTOSCALER
    if since is None or now - since < A_WHILE:
        return NO_AUTOSCALER if unattended else NO_WORKER
    return (NO_AUTOSCALER_SINCE if unattended else NO_WORKER_SINCE).format(at=_shown(since))


def _shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _why_scheduled(job: Job, reading: CatalogReading, now: datetime) -> str:
    if job.attempt:
        return WAITS_TO_RETRY
    was_given_back = job.fence > 0
    return NO_FIT if was_given_back and not fits_a_worker(job, reading, now) else DUE_LATER


def _why_queued(job: Job, reading: CatalogReading, now: datetime) -> str:
    if job.queue in reading.paused:
        return QUEUE_PAUSED
    if not any(servers_of(job, reading, now)):
        return _why_no_worker(job, reading, now)
    return NO_ROOM if fits_a_worker(job, reading, now) else NO_FIT
