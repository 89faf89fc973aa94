"""The job and the values its moves take and give.

`Job` is the whole durable row. The others are what one move needs, so that the hot path carries no more than it must.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Raw, Struct, field

from penstock.model.clock import Instant, check_instants
from penstock.model.fences import CLAIMS_MASK
from penstock.model.ids import JobId, ShardId
from penstock.model.lifecycle import TERMINAL, Event, State
from penstock.model.retry import Retry

PRIORITIES = 10
DEFAULT_PRIORITY = 5
Priority = Annotated[int, Meta(ge=0, le=9, description="9 goes first, 0 last; 5 unless told otherwise")]

JSON_NULL = b"null"


class ErrorCode(StrEnum):
    """Why an attempt errored: first what may be tried again, then what never is, then the loss of a process."""

    RAISED = "raised"
    TIMEOUT = "timeout"
    EXIT_STATUS = "exit_status"
    INPUT_UNAVAILABLE = "input_unavailable"

    INVALID_PARAMS = "invalid_params"
    INVALID_RESULT = "invalid_result"
    INVALID_OUTPUT = "invalid_output"
    CORRUPT_INPUT = "corrupt_input"

    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_LOST = "worker_lost"


NEVER_RETRIED = frozenset(
    {ErrorCode.INVALID_PARAMS, ErrorCode.INVALID_RESULT, ErrorCode.INVALID_OUTPUT, ErrorCode.CORRUPT_INPUT}
)
LOSSES = frozenset({ErrorCode.CRASHED, ErrorCode.OUT_OF_MEMORY, ErrorCode.WORKER_LOST})


class JobError(Struct, frozen=True, omit_defaults=True):
    """What went wrong in the last attempt that errored.

    `error_bases` are the classes that `error_class` inherits from: workers send them for the retry policy, and they are
    not stored.
    """

    code: ErrorCode
    message: str
    attempt: int = 0
    error_class: str | None = None
    traceback: str | None = None
    retryable: bool = True
    error_bases: tuple[str, ...] = ()


class ObjectLink(Struct, frozen=True):
    """A large value or a file in the object store: its key, and the digest that it must have."""

    key: str
    size: int
    digest: str
    content_type: str = "application/octet-stream"


class FileLink(Struct, frozen=True):
    """An input or output file: the name its user gave, and the object that holds it."""

    name: str
    object: ObjectLink


class Progress(Struct, frozen=True, omit_defaults=True):
    """The progress that a running job reports: 0 to 1, and a text."""

    fraction: Annotated[float, Meta(ge=0, le=1)]
    message: str | None = None


class Job(Struct, frozen=True, kw_only=True):
    """The durable row of one job. `params` and `result` are JSON; None when they lie in the object store instead.

    `version` is 1 for a new job, and grows by 1 with each change of its state and when it is asked to cancel.
    """

    id: JobId
    type: str
    queue: str
    state: State
    reason: str | None = None
    priority: int = DEFAULT_PRIORITY
    params: bytes | None = JSON_NULL
    params_object: ObjectLink | None = None
    result: bytes | None = None
    result_object: ObjectLink | None = None
    error: JobError | None = None
    progress: Progress | None = None
    attempt: int = 0
    fence: int = 0
    version: int = 1
    losses: int = 0
    retry: Retry
    timeout: timedelta | None = None
    due_at: datetime
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    expires_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    tags: tuple[str, ...] = ()
    inputs: tuple[FileLink, ...] = ()
    outputs: tuple[FileLink, ...] = ()
    worker: str | None = None
    retry_of: JobId | None = None
    schedule: str | None = None
    tick_at: datetime | None = None
    interval: timedelta | None = None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be inserted, with every default resolved. `due_at` None means now, by the shard's clock.

    `fingerprint` is a digest of what was asked: the same key with another fingerprint is a conflict.
    `ticketed` inserts a job that is due with its ticket deadline set; the caller then publishes the ticket.
    `anchor` marks the job that carries the key of a batch: it is kept for the longest retention, however it ends.
    `ring` is the epoch of the ring by which the key was placed; None: the key, if any, can be on one shard only.
    """

    id: JobId
    type: str
    queue: str
    priority: int = DEFAULT_PRIORITY
    params: bytes | None = JSON_NULL
    params_object: ObjectLink | None = None
    retry: Retry = Retry()
    timeout: timedelta | None = None
    delay: timedelta | None = None
    due_at: datetime | None = None
    expires_at: datetime | None = None
    tags: tuple[str, ...] = ()
    inputs: tuple[FileLink, ...] = ()
    key: str | None = None
    fingerprint: bytes = b""
    retry_of: JobId | None = None
    schedule: str | None = None
    tick_at: datetime | None = None
    interval: timedelta | None = None
    ticketed: bool = False
    anchor: bool = False
    ring: int | None = None


class BacklogKey(NamedTuple):
    """Queue and type. Each pair has its own window of tickets, so that no backlog blocks another."""

    queue: str
    type: str


class Ticket(Struct, frozen=True, array_like=True, gc=False):
    """The broker's volatile hint: look at this job. May be lost, doubled or late."""

    shard: ShardId
    job: JobId
    queue: str
    type: str
    priority: int = DEFAULT_PRIORITY

    @property
    def backlog_key(self) -> BacklogKey:
        return BacklogKey(self.queue, self.type)


class Lease(Struct, frozen=True, omit_defaults=True, gc=False):
    """The right to work on a job, as its owner shows it: id and fence, with what the owner reports.

    `begun` is false until the owner has passed the job to a handler.
    """

    job: JobId
    fence: int
    progress: Progress | None = None
    begun: bool = True


class Claim(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A job as its worker gets it. `lease_seconds` count from before the claim was asked for, not from its arrival.

    `alone`: it must have an executor to itself; `alone_in_worker`: a whole worker, which renews it as begun before it
    starts. `waited_seconds` is how long the job had been due when it was claimed.
    """

    job: JobId
    type: str
    queue: str
    attempt: int
    fence: int
    params: Raw = field(default_factory=lambda: Raw(JSON_NULL))
    params_object: ObjectLink | None = None
    timeout_seconds: float | None = None
    lease_seconds: float
    inputs: tuple[FileLink, ...] = ()
    tags: tuple[str, ...] = ()
    alone: bool = False
    priority: int = DEFAULT_PRIORITY
    alone_in_worker: bool = False
    waited_seconds: float = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether an earlier claim of this job ended without an outcome: given back, or lost."""
        return self.fence & CLAIMS_MASK > self.attempt


class Loss(StrEnum):
    """Why a move that showed a fence was not recorded.

    `unsure`: its shard gave no answer; ask again. `given_back`: the params do not fit this worker's handler, which is
    not of the current declaration, and the job waits for another worker; this one should take no more of the type.
    """

    MINE_ALREADY = "mine_already"
    LOST = "lost"
    GONE = "gone"
    UNSURE = "unsure"
    GIVEN_BACK = "given_back"


class Renewal(Struct, frozen=True, omit_defaults=True):
    """The answer to one renewed lease: lost (with the reason), or asked to cancel, or neither."""

    job: JobId
    fence: int
    loss: Loss | None = None
    cancel: bool = False


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of an attempt: the state to move to under `fence`, and what is stored with it.

    `state` is succeeded, failed, cancelled or scheduled; only the last has `retry_in`.
    """

    job: JobId
    fence: int
    state: State
    result: bytes | None = None
    result_object: ObjectLink | None = None
    outputs: tuple[FileLink, ...] = ()
    error: JobError | None = None
    reason: str | None = None
    retry_in: timedelta | None = None
    loss: bool = False


class Settled(Struct, frozen=True, gc=False):
    """The result of a settlement or a release: accepted (`event`), or refused (`loss`). MINE_ALREADY is a repeat."""

    job: JobId
    fence: int
    event: Event | None = None
    loss: Loss | None = None


class Cancellation(Struct, frozen=True):
    """The result of a cancel: the job afterwards, and the event if this call changed it. `job` None: no such job."""

    job: Job | None
    event: Event | None = None


class JobFilter(Struct, frozen=True, omit_defaults=True):
    """Which jobs to list; what is None does not restrict."""

    type: str | None = None
    state: State | None = None
    queue: str | None = None
    tag: str | None = None


class Page(Struct, frozen=True):
    """Some jobs, newest first, and the cursor of the next page; None at the end.

    A job that is there from the first page to the last is seen exactly once, whatever is added or removed meanwhile.
    `behind` holds, for each job, the cursor of a page that begins after it; `missing` are the shards that did not
    answer, whose jobs are left out.
    """

    jobs: Sequence[Job]
    cursor: str | None
    behind: Sequence[str] = ()
    missing: tuple[ShardId, ...] = ()


class LogLine(Struct, frozen=True, omit_defaults=True):
    """One line that a job wrote. `stream` is stdout, stderr, or the level of a `logging` record."""

    at: Instant
    stream: str
    text: str
    attempt: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0

    def __post_init__(self) -> None:
        check_instants(self, "at")


class Count(Struct, frozen=True):
    """How many jobs of one type are in one queue in one state."""

    queue: str
    type: str
    state: State
    jobs: int


class Retention(Struct, frozen=True):
    """How long ended jobs stay readable."""

    succeeded: timedelta = timedelta(days=7)
    failed: timedelta = timedelta(days=30)

    @property
    def longest(self) -> timedelta:
        """How long anchors of batches stay."""
        return max(self.succeeded, self.failed)


class Pruned(Struct, frozen=True):
    """How many ended jobs were removed, and which of them own objects that are to be deleted."""

    jobs: int
    owners: tuple[JobId, ...] = ()
