"""Jobs: add, look at, wait for, list, cancel, retry."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.access import show_job
from penstock.api.batches import IDEMPOTENCY_KEY, REPEATED, header_key, is_repeated, shards_header, with_header_key
from penstock.api.operation import Answer, operation
from penstock.api.request import NO_HEADERS, ApiReply, ApiRequest, Headers, json_reply
from penstock.model.clock import seconds
from penstock.model.errors import PenstockError
from penstock.model.ids import JobId
from penstock.model.job import Job, JobFilter
from penstock.model.keys import KeyScope
from penstock.model.lifecycle import State
from penstock.model.names import Name, Tag
from penstock.model.submission import Submission
from penstock.model.wire.jobs import JobItem, JobPage, SubmitRequest


class GetQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`wait` holds the answer until the job has ended, at most so many seconds and at most `limits.wait_seconds`."""

    wait: Annotated[float, Meta(ge=0, le=86_400)] = 0.0


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, and how many on a page: never more than `limits.page_jobs`, whatever `limit` says."""

    type: Name | None = None
    # Not None: in a query the word "null" would stand for it, and mean every state.
    state: State | UnsetType = UNSET
    queue: Name | None = None
    tag: Tag | None = None
    cursor: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50


class CancelQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`force` ends a running job on the spot instead of asking it to stop."""

    force: bool = False


@operation(
    "POST /v1/jobs",
    {
        201: Answer("The job, added.", JobItem, headers=("Location",)),
        200: Answer("The job that this idempotency key made before.", JobItem, headers=("Location",)),
    },
    body=SubmitRequest,
    headers=(IDEMPOTENCY_KEY, REPEATED),
    refusals=(409,),
)
async def submit_job(call: ApiRequest) -> ApiReply:
    """Add a job. Answered only once it is durable."""
    request = with_header_key(await call.json(SubmitRequest), header_key(call, IDEMPOTENCY_KEY))
    if request.interval is not None:
        call.require(KeyScope.SCHEDULES)
    # A schedule lives where its name says, whatever its key does.
    key = request.idempotency_key if request.interval is None else None
    repeated = is_repeated(call)
    if key is None:
        submission, shards = await _submit(call, request), NO_HEADERS
    else:
        with call.engine.sdk_placement.choosing(key, repeated=repeated):
            submission = await _submit(call, request)
        shards = shards_header(call, key)
    job = submission.job
    if not submission.created:
        return await _job_reply(call, job, 200, headers=shards)
    return await _job_reply(call, job, 201, job.created_at, headers=shards)


@operation("GET /v1/jobs", {200: Answer("A page of jobs, newest first.", JobPage)}, query=ListQuery)
async def list_jobs(call: ApiRequest) -> ApiReply:
    """List jobs, newest first."""
    query = call.query(ListQuery)
    where = JobFilter(query.type, query.state or None, query.queue, query.tag)
    limit = min(query.limit, call.engine.settings.limits.page_jobs)
    return json_reply(200, await call.engine.jobs.list(where, query.cursor, limit))


@operation("GET /v1/jobs/{job}", {200: Answer("The job.", JobItem, headers=("ETag",))}, query=GetQuery, refusals=(404,))
async def get_job(call: ApiRequest) -> ApiReply:
    """Look at a job, or wait until it has ended."""
    job, query = call.job(), call.query(GetQuery)
    found = await _wait_for_end(call, job, query.wait) if query.wait else await call.engine.jobs.get(job)
    return json_reply(200, await call.engine.jobs.item(found), ((b"etag", b'"%d"' % found.version),))


@operation(
    "POST /v1/jobs/{job}/cancel",
    {200: Answer("The job: cancelled, asked to stop, or ended already.", JobItem)},
    query=CancelQuery,
    refusals=(404,),
    scopes=(KeyScope.JOBS_CANCEL,),
)
async def cancel_job(call: ApiRequest) -> ApiReply:
    """Cancel a waiting job, or ask a running one to stop."""
    job, query = call.job(), call.query(CancelQuery)
    cancelled = await call.engine.jobs.cancel(job, force=query.force)
    return json_reply(200, await show_job(call, cancelled))


@operation(
    "POST /v1/jobs/{job}/retry",
    {201: Answer("A new job that asks for the same.", JobItem, headers=("Location",))},
    refusals=(404, 409),
)
async def retry_job(call: ApiRequest) -> ApiReply:
    """Run an ended job again, as a new job."""
    return await _job_reply(call, await call.engine.jobs.retry(call.job()), 201)


async def _submit(call: ApiRequest, request: SubmitRequest) -> Submission:
    (outcome,) = await call.engine.jobs.submit([request])
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


async def _wait_for_end(call: ApiRequest, job: JobId, wait: float) -> Job:
    """The job once it has ended or the wait is over; ClientGone if the client hangs up first."""
    span = seconds(min(wait, call.engine.settings.limits.wait_seconds))
    return await call.wait_for(call.engine.jobs.wait(job, span))


async def _job_reply(
    call: ApiRequest, job: Job, status: int, seen_at: datetime | None = None, *, headers: Headers = ()
) -> ApiReply:
    item = await show_job(call, job, seen_at)
    return json_reply(status, item, ((b"location", f"/v1/jobs/{job.id}".encode()), *headers))


OPERATIONS = (submit_job, list_jobs, get_job, cancel_job, retry_job)
