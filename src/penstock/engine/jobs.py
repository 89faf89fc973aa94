"""The client's operations on jobs: submit, get, wait, list, cancel, retry; and why a job waits."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.batches import Batches, BatchKey, SubmitOutcome
from penstock.engine.catalog import CatalogReading
from penstock.engine.files import job_prefix
from penstock.engine.job_spec import missing_job, same_again
from penstock.engine.parts import EngineParts
from penstock.engine.repeats import RepeatedSubmits
from penstock.engine.submit import Insertion, Preparation
from penstock.engine.type_fit import fits_a_worker, fits_all, last_had, servers_of
from penstock.model.clock import Instant
from penstock.model.declarations import DeclaredType
from penstock.model.errors import Conflict, KeyConflict, MapChanged, Unavailable
from penstock.model.fleet_readings import Runs
from penstock.model.ids import JobId
from penstock.model.job import Job, JobFilter, NewJob
from penstock.model.lifecycle import State
from penstock.model.notices import NoticeKind
from penstock.model.submission import Known, Submission
from penstock.model.wire.jobs import JobItem, JobPage, LogPage, SubmitRequest, job_item
from penstock.store.answers import require

MAX_AGE = timedelta(seconds=30)
"""The record of an autoscaler that is older counts as none."""


class _LatestDecision(Struct, frozen=True):
    desired: int
    at: Instant


class _FleetOutlook(Struct, frozen=True):
    """The fields of a fleet's record that tell whether a worker for a job is coming."""

    latest: _LatestDecision
    queues: tuple[str, ...] | None = None
    except_queues: tuple[str, ...] = ()
    runs: Runs | None = None
    app: str | None = None

    def serves(self, queue: str) -> bool:
        return queue not in self.except_queues if self.queues is None else queue in self.queues

    def is_fresh(self, now: datetime) -> bool:
        return now - self.latest.at <= MAX_AGE

    def is_of(self, types: Sequence[DeclaredType]) -> bool:
        """Whether its app declares one of these types, as far as is known."""
        return self.app is None or not any(one.apps for one in types) or any(self.app in one.apps for one in types)

    def lacks(self, job: Job, names: Sequence[str], types: Sequence[DeclaredType]) -> bool:
        """Whether its workers lack a handler for a job, which may have any of these names."""
        newest = max((one.apps.get(self.app or "", one.declared_at) for one in types), default=None)
        return self.runs is not None and self.runs.lacks(job.type, names, newest)


class Prospect(Enum):
    """What the records of autoscalers promise for a job without a worker."""

    COMING = auto()
    NONE = auto()
    NO_AUTOSCALER = auto()


def prospect_of(job: Job, reading: CatalogReading, now: datetime) -> Prospect:
    """Whether a fleet that serves a job's queue is starting workers that run its type.

    NO_AUTOSCALER: such fleets have records, but no autoscaler runs now for an app that declares the type.
    """
    names = reading.handled_as(job.type)
    types = [reading.types[name] for name in names if name in reading.types]
    serving = [outlook for outlook in _outlooks(reading) if outlook.serves(job.queue)]
    acting = [outlook for outlook in serving if outlook.is_fresh(now) and outlook.is_of(types)]
    if any(outlook.latest.desired > 0 and not outlook.lacks(job, names, types) for outlook in acting):
        return Prospect.COMING
    return Prospect.NO_AUTOSCALER if serving and not acting else Prospect.NONE


def _outlooks(reading: CatalogReading) -> list[_FleetOutlook]:
    kept = [one.value for one in reading.notices.values() if one.kind == NoticeKind.FLEET_RECORD]
    return [outlook for value in kept if value is not None and (outlook := _decoded(value)) is not None]


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> _FleetOutlook | None:
    try:
        return msgspec.json.decode(value, type=_FleetOutlook)
    except msgspec.ValidationError:
        return None


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
"""How long a type must be without a worker before the reason says since when: workers are replaced all the time."""


class WaitReasons:
    """Why jobs wait, cached per reading of the registry: most jobs of a type wait for the same reason."""

    def __init__(self) -> None:
        self._reading: CatalogReading | None = None
        self._queued: dict[tuple[str, str], str] = {}

    def find(self, job: Job, reading: CatalogReading, now: datetime) -> str | None:
        """`why_it_waits`, cached for the jobs of one type in one queue unless it depends on their params."""
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


PLACED_AGAIN = 3
"""How often a job is placed again after the shard map has changed."""


class Jobs:
    """The client's operations on jobs."""

    def __init__(self, parts: EngineParts, repeats: RepeatedSubmits) -> None:
        self._store = parts.store
        self._files = parts.files
        self._catalog = parts.catalog
        self._signals = parts.signals
        self._waiters = parts.job_waiters
        self._preparation = Preparation(parts, repeats)
        self._insertion = Insertion(parts)
        self._reasons = WaitReasons()
        self._batches = Batches(parts.store, parts.settings.retention, self._preparation, self._insertion, self.submit)

    async def submit(self, requests: Sequence[SubmitRequest], tries: int = PLACED_AGAIN) -> list[SubmitOutcome]:
        """Make each job durable, or refuse it by itself. One answer each, in order.

        Jobs whose shard no longer takes them because the shard map has changed are placed again, `tries` times.
        """
        prepared = await self._preparation.prepare(requests)
        answers = iter(await self._insertion.insert([job for job in prepared if isinstance(job, NewJob)]))
        outcomes = [next(answers) if isinstance(job, NewJob) else job for job in prepared]
        if tries and MapChanged in map(type, outcomes):
            moved = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, MapChanged)]
            again = await self.submit([requests[index] for index in moved], tries - 1)
            for index, outcome in zip(moved, again, strict=True):
                outcomes[index] = outcome
        return [_conflict(one) if isinstance(one, Known) and one.conflict else one for one in outcomes]

    async def submit_batch(self, requests: Mapping[int, SubmitRequest], key: BatchKey) -> dict[int, SubmitOutcome]:
        """`submit`, by the indexes of the jobs in their batch; under the same key no job is added twice."""
        return await self._batches.submit(requests, key)

    async def get(self, job: JobId) -> Job:
        (found,) = require(await self._store.get([job]))
        if found is None:
            raise missing_job(job)
        return found

    async def wait(self, job: JobId, span: timedelta) -> Job:
        """The job once it has ended, or as it is after `span`."""
        return await self._waiters.wait_until_ended(job, lambda: self.get(job), span)

    async def item(self, job: Job, seen_at: datetime | None = None) -> JobItem:
        """A job as clients see it, with large params and results read in, and why it waited at `seen_at`, or now."""
        if job.params is None and job.params_object is not None:
            job = replace(job, params=await self._files.read_value(job.params_object))
        if job.result is None and job.result_object is not None:
            job = replace(job, result=await self._files.read_value(job.result_object))
        reading = await self._catalog.read()
        return job_item(job, self._reasons.find(job, reading, seen_at or await self._store.now()))

    async def cancel(self, job: JobId, *, force: bool = False) -> Job:
        """Cancel a waiting job, ask a running one to stop (`force`: end it now), leave an ended one as it is."""
        (cancellation,) = require(await self._store.cancel([job], force=force))
        if cancellation.job is None:
            raise missing_job(job)
        if cancellation.event is not None:
            self._signals.publish_events([cancellation.event])
        return cancellation.job

    async def retry(self, job: JobId) -> Job:
        """A new job like an ended one."""
        old = await self.get(job)
        if not old.ended:
            raise Conflict(f"job {job} is {old.state}: only an ended job can be retried; cancel it first")
        made = await self._submit_again(old)
        for _ in range(PLACED_AGAIN):
            if isinstance(made, MapChanged):
                made = await self._submit_again(old)
        if isinstance(made, Unavailable):
            raise made
        return made.job

    async def _submit_again(self, old: Job) -> Submission | Unavailable:
        again = same_again(self._preparation.new_id(), old)
        if old.params_object is not None:
            value = await self._files.read_value(old.params_object)
            again = replace(again, params_object=await self._files.keep_value(f"{job_prefix(again.id)}/params", value))
        again = replace(again, inputs=await self._files.inherit(again.id, old.inputs))
        (made,) = await self._insertion.insert([again])
        return made

    async def log(self, job: JobId, after: int, limit: int) -> LogPage:
        """The log lines of a job after a position."""
        await self.get(job)
        lines, position = await self._store.read_log(job, after, limit)
        return LogPage(tuple(lines), position)

    async def list(self, where: JobFilter, cursor: str | None, limit: int) -> JobPage:
        """Newest first; large params and results are left out."""
        page = await self._store.page(where, cursor, limit)
        return JobPage(tuple(await self.items(page.jobs)), page.cursor, page.missing)

    async def items(self, jobs: Sequence[Job]) -> Sequence[JobItem]:
        """Jobs as clients see them; large params and results are left out."""
        reading, now = await self._catalog.read(), await self._store.now()
        return [job_item(job, self._reasons.find(job, reading, now)) for job in jobs]


def _conflict(known: Known) -> KeyConflict:
    return KeyConflict(f"the idempotency key was used for job {known.id}, which asked for something else")
