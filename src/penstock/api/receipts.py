"""What a key learns of a job or a queue that it may change but not look at.

To look at jobs is a scope of its own: an answer to anything else holds no more than its caller needs to go on.
"""

from datetime import datetime

from msgspec.structs import replace

from penstock.api.exchange import ApiRequest
from penstock.model.job import Job
from penstock.model.keys import KeyScope
from penstock.model.retry import Retry
from penstock.model.wire import NULL, JobItem, QueueItem

_TOLD = frozenset(
    (
        "id",
        "state",
        "cancel_requested",
        "scheduled_at",
        "created_at",
        "started_at",
        "completed_at",
        "expires_at",
        "tick_at",
        "omitted",
    )
)
_OMITTED = tuple(name for name in JobItem.__struct_fields__ if name not in _TOLD)


async def shown_job(call: ApiRequest, job: Job, seen_at: datetime | None = None) -> JobItem:
    """The job, as it was at `seen_at`, else as of now; its id, state and times if the key may not look at jobs."""
    return await call.engine.jobs.item(job, seen_at) if call.may(KeyScope.JOBS_READ) else receipt(job)


def shown_queue(call: ApiRequest, queue: QueueItem) -> QueueItem:
    """The queue; without its jobs if the key may not look at jobs."""
    return queue if call.may(KeyScope.JOBS_READ) else replace(queue, jobs={}, oldest_seconds=None)


def receipt(job: Job) -> JobItem:
    """A job's id, state and times; every other field is empty, and named in `omitted`."""
    return JobItem(
        id=job.id,
        state=job.state,
        cancel_requested=job.cancel_requested_at is not None,
        scheduled_at=job.due_at,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        expires_at=job.expires_at,
        tick_at=job.tick_at,
        omitted=_OMITTED,
        type="",
        queue="",
        reason=None,
        priority=0,
        params=NULL,
        result=NULL,
        error=None,
        progress=None,
        attempt=0,
        max_attempts=0,
        fence=0,
        retry_policy=Retry.none(),
        timeout_seconds=None,
        tags=(),
        inputs=(),
        outputs=(),
        worker=None,
        retry_of=None,
    )
