"""The bodies of HTTP requests and answers, shared by the API, the client and the worker. Durations are `…_seconds`."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, convert, field

from penstock.model.clock import Instant, check_instants
from penstock.model.declarations import plain_type
from penstock.model.ids import JobId
from penstock.model.job import (
    JSON_NULL,
    Claim,
    FileLink,
    Job,
    JobError,
    Lease,
    LogLine,
    Loss,
    Priority,
    Progress,
    Renewal,
)
from penstock.model.lifecycle import State
from penstock.model.names import FileName, Name, Tag, whole
from penstock.model.retry import Retry, RetryKind
from penstock.model.workers import DrainRequest, JobType, TimeoutSeconds, Worker

Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]
# One that is too short is refused by `model.ticks`, which says what to do.
Interval = Annotated[
    float, Meta(ge=-315_360_000, le=315_360_000, description="seconds between two ticks of a schedule")
]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=32)]
ContentType = Annotated[
    str, whole(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}( *; *[\x20-\x7e]*)?", max_length=255)
]
Key = Annotated[str, whole(r"[\x21-\x7e]+", max_length=255)]
Sha256 = Annotated[str, whole("[0-9a-fA-F]{64}", max_length=64)]

EMPTY_OBJECT = Raw(b"{}")
NULL = Raw(JSON_NULL)


class SubmitRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A job to add. What is left out comes from the job type; `delay_seconds` and `scheduled_at` exclude each other.

    With `interval` it is the first job of a schedule that is made with it; that one starts now and never expires.
    """

    type: Name
    params: Raw = field(default_factory=lambda: EMPTY_OBJECT)
    queue: Name | None = None
    priority: Priority | None = None
    delay_seconds: Seconds | None = None
    scheduled_at: Instant | None = None
    interval: Interval | None = None
    retry_policy: Retry | RetryKind | None = None
    timeout_seconds: TimeoutSeconds | UnsetType | None = UNSET
    expires_at: Instant | None = None
    tags: Tags = ()
    inputs: Annotated[dict[FileName, str], Meta(max_length=100, description="file name → id of an upload")] = {}
    idempotency_key: Key | None = None

    def __post_init__(self) -> None:
        if self.scheduled_at is not None or self.expires_at is not None:
            check_instants(self, "scheduled_at", "expires_at")


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Many jobs at once; each is accepted or refused by itself."""

    jobs: tuple[Raw, ...]


class Problem(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An error as RFC 9457 writes it, with Penstock's stable `code`."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    instance: str | None = None
    known: tuple[str, ...] = ()


class BatchAnswer(Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of one job of a batch: its id (and whether this call made it), or why it was refused."""

    index: int
    id: JobId | None = None
    state: State | None = None
    created: bool = False
    problem: Problem | None = None


class BatchResponse(Struct, frozen=True):
    accepted: int
    refused: int
    jobs: tuple[BatchAnswer, ...]


class FileItem(Struct, frozen=True):
    """An input or output file of a job."""

    name: str
    size: int
    digest: str
    content_type: str


class JobItem(Struct, frozen=True, kw_only=True):
    """A job as everyone sees it. `omitted` names fields that are empty here: values too large for a list, for which one
    asks for the job itself, and most of them where an API key may not read jobs.

    `params` and `result` are any JSON: raw on their way out of a server, plain values once read.
    """

    id: JobId
    type: str
    queue: str
    state: State
    reason: str | None
    priority: int
    params: Any
    result: Any
    error: JobError | None
    progress: Progress | None
    attempt: int
    max_attempts: int
    fence: int
    retry_policy: Retry
    timeout_seconds: float | None
    scheduled_at: Instant
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None
    expires_at: Instant | None
    cancel_requested: bool
    tags: tuple[str, ...]
    inputs: tuple[FileItem, ...]
    outputs: tuple[FileItem, ...]
    worker: str | None
    retry_of: JobId | None
    schedule: str | None = None
    tick_at: Instant | None = None
    interval: float | None = None
    version: int = 1
    omitted: tuple[str, ...] = ()


class JobPage(Struct, frozen=True):
    """A page of jobs, newest first; `cursor` gets the next one, null at the end.

    `missing_shards` did not answer: their jobs are not in it, and come on a later page once they do.
    """

    jobs: tuple[JobItem, ...]
    cursor: str | None
    missing_shards: tuple[int, ...] = ()


class LogPage(Struct, frozen=True):
    """Log lines after a position; pass `position` as `after` to go on."""

    lines: tuple[LogLine, ...]
    position: int


class Upload(Struct, frozen=True):
    """A file that waits to be linked by a job as its input."""

    id: str
    size: int
    digest: str
    content_type: str


class UploadRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is to be sent to the object store itself: its SHA-256 in hex, how many bytes, and what it is."""

    digest: Sha256
    size: Annotated[int, Meta(ge=0)]
    content_type: ContentType = "application/octet-stream"


class DirectUpload(Struct, frozen=True):
    """Where to send the bytes: one request of `method` to `url` with these `headers`, before `expires_at`.

    `id` names the file from then on: in a job's inputs, or as the key of an output. Where the object store cannot be
    reached from outside, all are null: send the bytes to the server.
    """

    id: str | None = None
    url: str | None = None
    method: str | None = None
    headers: dict[str, str] | None = None
    expires_at: Instant | None = None


class QueueItem(Struct, frozen=True, kw_only=True):
    """A queue: its jobs by state, how long the oldest due one has waited, and whether it is paused."""

    name: str
    paused: bool
    jobs: dict[State, int]
    oldest_seconds: float | None


class QueueList(Struct, frozen=True):
    """Queues; jobs on `missing_shards`, which did not answer, are not counted."""

    queues: tuple[QueueItem, ...]
    missing_shards: tuple[int, ...] = ()


class WorkerList(Struct, frozen=True):
    workers: tuple[Worker, ...]


class Health(Struct, frozen=True):
    """`status` is ok, or says what is wrong."""

    status: str
    version: str


# -- between worker and engine


class JoinRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker presents itself and declares the types it can run; of two declarations the newer code's counts."""

    worker: Worker
    types: tuple[JobType, ...]


class JoinResponse(Struct, frozen=True):
    """How long leases last here and how often to renew them."""

    lease_seconds: float
    heartbeat_seconds: float


class ClaimRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many jobs the worker can take now, of which types and queues, and how long it will wait for the first.

    `queues` null: all but `except_queues`. Of types in `only_given_back` it wants only jobs that did not fit another
    worker's handler.
    """

    types: tuple[Name, ...]
    limit: Annotated[int, Meta(ge=1, le=10_000)]
    wait_seconds: Seconds = 20.0
    queues: tuple[Name, ...] | None = None
    except_queues: tuple[Name, ...] = ()
    only_given_back: tuple[Name, ...] = ()


class ClaimResponse(Struct, frozen=True):
    claims: tuple[Claim, ...]


class RenewRequest(Struct, frozen=True, forbid_unknown_fields=True):
    worker: Worker
    leases: tuple[Lease, ...] = ()


class RenewResponse(Struct, frozen=True):
    """One answer per lease, in order. `drain`: the worker is asked to drain."""

    renewals: tuple[Renewal, ...] = ()
    drain: DrainRequest | None = None


class Outcome(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """How an attempt ended, as its worker tells: with a result, with an error, or stopped because it was asked to."""

    job: JobId
    fence: int
    result: Raw = field(default_factory=lambda: NULL)
    outputs: tuple[FileLink, ...] = ()
    error: JobError | None = None
    cancelled: bool = False


class SettleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    outcomes: tuple[Outcome, ...]


class Refusal(Struct, frozen=True):
    """An outcome, a release or log lines that were not accepted, and why."""

    job: JobId
    fence: int
    loss: Loss

    @property
    def unsure(self) -> bool:
        return self.loss is Loss.UNSURE


class SettleResponse(Struct, frozen=True):
    """Only what was refused; everything else is recorded."""

    refused: tuple[Refusal, ...] = ()


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    leases: tuple[Lease, ...]
    suspects: bool = False


class LogEntry(Struct, frozen=True):
    """Lines of an attempt. `first` is how many it wrote before these, so that none is kept twice; None: not counted."""

    job: JobId
    fence: int
    lines: tuple[LogLine, ...]
    first: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


class LogRequest(Struct, frozen=True, forbid_unknown_fields=True):
    entries: tuple[LogEntry, ...]


def is_content_type(text: object) -> bool:
    """Whether a file could be sent as this."""
    try:
        convert(text, ContentType)
    except ValidationError:
        return False
    return True


def file_item(link: FileLink) -> FileItem:
    return FileItem(link.name, link.object.size, link.object.digest, link.object.content_type)


def job_item(job: Job, reason: str | None = None) -> JobItem:
    """A job as the API shows it; `reason` says why a waiting one waits."""
    return JobItem(
        id=job.id,
        type=plain_type(job.type),
        queue=job.queue,
        state=job.state,
        reason=job.reason or reason,
        priority=job.priority,
        params=Raw(job.params) if job.params else NULL,
        result=Raw(job.result) if job.result else NULL,
        error=job.error,
        progress=job.progress,
        attempt=job.attempt,
        max_attempts=job.retry.max_attempts,
        fence=job.fence,
        retry_policy=job.retry,
        timeout_seconds=job.timeout.total_seconds() if job.timeout is not None else None,
        scheduled_at=job.due_at,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        expires_at=job.expires_at,
        cancel_requested=job.cancel_requested_at is not None,
        tags=job.tags,
        inputs=tuple(map(file_item, job.inputs)),
        outputs=tuple(map(file_item, job.outputs)),
        worker=job.worker,
        retry_of=job.retry_of,
        schedule=job.schedule,
        tick_at=job.tick_at,
        interval=job.interval.total_seconds() if job.interval is not None else None,
        version=job.version,
        omitted=_omitted(job),
    )


def _omitted(job: Job) -> tuple[str, ...]:
    """The fields that are stored as objects and were not read."""
    if job.params_object is None and job.result_object is None:
        return ()
    kept = (("params", job.params, job.params_object), ("result", job.result, job.result_object))
    return tuple(name for name, inline, link in kept if inline is None and link is not None)
