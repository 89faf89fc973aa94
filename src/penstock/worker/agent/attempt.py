"""One attempt in the agent, from its claim until its outcome is recorded."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, Self

from msgspec import Raw, Struct

from penstock.model.job import NEVER_RETRIED, Claim, ErrorCode, FileLink, JobError, Lease, LogLine, Progress
from penstock.model.text import readable
from penstock.model.wire.jobs import Outcome
from penstock.worker.protocol import folder_of

NEVER = float("inf")


class StopReason(StrEnum):
    """Why a running attempt is asked to stop."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost its lease"
    UNRENEWED = "could not renew its lease"
    YIELDING = "yielding"


class Bearer(Protocol):
    """What an attempt runs in and can be stopped through. Each method may be called more than once."""

    def ask(self, attempt: "Attempt") -> None:
        """Ask the attempt to stop by itself."""
        ...

    def insist(self, attempt: "Attempt") -> None:
        """Ask again, more firmly: half of its grace has passed."""
        ...

    def kill(self, attempt: "Attempt") -> None:
        """End the attempt, and whatever shares its process: its grace has passed."""
        ...


class Attempt(Struct, eq=False):
    """An attempt and its deadlines. Times are monotonic seconds; `lease_ends` counts from before the claim was sent.

    `inputs` are the paths of its downloaded input files by name; `place` is its index in its executor.
    `lines` are log lines to be sent; `lines_sent` counts those sent before.
    `begun`: its handler has been called, or is about to be; `confirmed` is done once the engine knows that.
    """

    claim: Claim
    scratch: str
    lease_ends: float
    timeout_at: float
    inputs: Mapping[str, str] = {}
    bearer: Bearer | None = None
    place: int = -1
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    lines_sent: int = 0
    reason: StopReason | None = None
    stopped_at: float = 0.0
    kill_at: float = 0.0
    insisted: bool = False
    begun: bool = False
    confirmed: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, claim: Claim, asked_at: float, now: float, scratch: str) -> Self:
        timeout = claim.timeout_seconds
        return cls(claim, scratch, asked_at + claim.lease_seconds, NEVER if timeout is None else now + timeout)

    def count_from(self, now: float) -> None:
        """Start its timeout at `now`."""
        timeout = self.claim.timeout_seconds
        self.timeout_at = NEVER if timeout is None else now + timeout

    @property
    def folder(self) -> str:
        """The folder of its files, once it has any."""
        return folder_of(self.scratch, self.claim.job, self.claim.fence)

    @property
    def lease(self) -> Lease:
        return Lease(self.claim.job, self.claim.fence)

    def take_progress(self) -> Lease:
        """The lease with the progress since the last renewal."""
        progress, self.progress = self.progress, None
        return Lease(self.claim.job, self.claim.fence, progress, self.begun)

    def renewed(self, lease: Lease, lease_ends: float) -> None:
        """Record that the engine has renewed this lease."""
        self.lease_ends = lease_ends
        if self.confirmed is not None and lease.begun and not self.confirmed.done():
            self.confirmed.set_result(None)

    def stop(self, reason: StopReason, now: float, grace: float) -> None:
        """Begin to stop the attempt. A second reason replaces the first only if the lease is lost."""
        if reason is StopReason.LOST or self.reason is None:
            self.reason = reason
        if not self.stopped_at:
            self.stopped_at, self.kill_at = now, now + grace
            if self.bearer is not None:
                self.bearer.ask(self)
        self.kill_at = min(self.kill_at, now + grace)

    def __str__(self) -> str:
        return f"job {self.claim.job} ({self.claim.type}, attempt {self.claim.attempt})"


# -- how an attempt ended


class Returned(Struct, frozen=True, gc=False):
    """The handler returned. `outputs` is None if it wrote no files, else their declared content types."""

    result: bytes
    outputs: Mapping[str, str] | None = None


class Failed(Struct, frozen=True):
    """The handler raised, or the attempt could not be run."""

    error: JobError


class Halted(Struct, frozen=True):
    """The attempt stopped when asked, or never started."""


class Displaced(Struct, frozen=True):
    """Its executor was killed because another job there did not stop when asked."""


class Cause(StrEnum):
    """Why an executor ended or was killed."""

    CRASH = "crash"
    MEMORY = "memory"


class Died(Struct, frozen=True):
    """Its executor died. `together` is how many jobs it was running: if one, that job is the cause."""

    cause: Cause
    how: str
    together: int


Ending = Returned | Failed | Halted | Displaced | Died
End = tuple[Attempt, Ending]


# -- what the engine is told


class Release(Struct, frozen=True):
    """Return the job without counting the attempt. A `suspect` runs alone next time: its executor died."""

    suspect: bool = False


class Discard(Struct, frozen=True):
    """Tell nothing: another worker holds the job."""


Telling = Outcome | Release | Discard


def conclude(claim: Claim, ending: Ending, reason: StopReason | None, outputs: tuple[FileLink, ...] = ()) -> Telling:
    """What to tell the engine about an attempt that ended. `reason` is why it was being stopped, None if it was not.

    A handler that ended before the stop took effect keeps its outcome, unless the lease is lost.
    """
    if reason is StopReason.LOST:
        return Discard()
    if isinstance(ending, Returned):
        return Outcome(job=claim.job, fence=claim.fence, result=Raw(ending.result), outputs=outputs)
    match ending:
        case Failed(error):
            return Outcome(job=claim.job, fence=claim.fence, error=error)
        case Halted():
            return _stopped(claim, reason)
        case Displaced() | Died() if reason is not None:
            return _stopped(claim, reason)
        case Displaced():
            # Alone in an executor, it cannot be restarted again and again by the timeouts of other jobs.
            return Release(suspect=True)
        case Died(_, _, together) if together > 1:
            return Release(suspect=True)
        case Died():
            return _errored(claim, *_guilt(ending))


def _stopped(claim: Claim, reason: StopReason | None) -> Telling:
    match reason:
        case StopReason.CANCELLED:
            return Outcome(job=claim.job, fence=claim.fence, cancelled=True)
        case StopReason.TIMED_OUT:
            return _errored(claim, ErrorCode.TIMEOUT, f"still running after {claim.timeout_seconds:g} s")
        case StopReason.LOST:
            return Discard()
        case StopReason.UNRENEWED | StopReason.YIELDING | None:
            return Release()


def _guilt(death: Died) -> tuple[ErrorCode, str]:
    match death.cause:
        case Cause.CRASH:
            return ErrorCode.CRASHED, f"the process that ran the handler {death.how}"
        case Cause.MEMORY:
            return ErrorCode.OUT_OF_MEMORY, f"the process that ran the handler {death.how}"


def _errored(claim: Claim, code: ErrorCode, message: str) -> Outcome:
    return Outcome(job=claim.job, fence=claim.fence, error=attempt_error(claim, code, message))


def attempt_error(claim: Claim, code: ErrorCode, message: str) -> JobError:
    return JobError(code, readable(message), attempt=claim.attempt, retryable=code not in NEVER_RETRIED)


def simplify(claim: Claim, telling: Outcome | Release, why: str) -> Outcome | None:
    """A plain error that replaces an outcome which cannot be recorded; None if it is plain already."""
    if isinstance(telling, Release) or telling.cancelled:
        return None
    if telling.error is None:
        return _errored(claim, ErrorCode.INVALID_RESULT, f"the result cannot be recorded: {why}")
    plain = JobError(
        telling.error.code,
        f"the attempt errored, and what it said cannot be recorded: {why}",
        attempt=claim.attempt,
        retryable=telling.error.retryable,
    )
    return Outcome(job=claim.job, fence=claim.fence, error=plain)


CLOCK_SKEW_SECONDS = 1.0


class LeaseTerms(Struct, frozen=True):
    """The engine's lease and heartbeat, and the deadlines derived from them. Seconds.

    `skew` is a margin before the end of a lease; `notice` is how long before that margin a job is asked to stop.
    """

    lease: float
    heartbeat: float
    skew: float
    notice: float

    @classmethod
    def of(cls, lease: float, heartbeat: float, grace: float) -> Self:
        return cls(
            lease=lease,
            heartbeat=min(heartbeat, lease / 3),
            skew=min(CLOCK_SKEW_SECONDS, lease / 10),
            notice=min(grace, lease / 4),
        )

    @property
    def claim_wait(self) -> float:
        """How long a claim may wait for jobs. The wait shortens the lease, which counts from the request."""
        return self.lease / 3

    def gone(self, lease_ends: float) -> float:
        """When the lease may no longer be used."""
        return lease_ends - self.skew

    def given_up(self, lease_ends: float) -> float:
        """When an outcome is discarded. It is still told after the lease has ended: the fence protects the job."""
        return lease_ends + self.lease

    def gone_by(self, now: float) -> float:
        """Leases that end before this time may no longer be used."""
        return now + self.skew

    def late_by(self, now: float) -> float:
        """Jobs whose leases end before this time are to be stopped now."""
        return now + self.skew + self.notice

    def stop_at(self, lease_ends: float) -> float:
        """When to ask a job to stop whose lease is not renewed, so that it ends before the lease does."""
        return lease_ends - self.skew - self.notice


class Wakeup:
    """Wakes the tasks that wait now. It does not stay set as an Event does: check the condition before waiting."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def wait(self) -> None:
        heard = asyncio.get_running_loop().create_future()
        self._waiting.append(heard)
        await heard
