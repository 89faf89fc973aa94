"""In the agent: one attempt, from its claim until its end is recorded."""

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
    """Whatever an attempt currently runs in, as far as stopping it goes. Each may be called more than once."""

    def ask(self, attempt: "Attempt") -> None:
        """Ask it to stop by itself."""
        ...

    def insist(self, attempt: "Attempt") -> None:
        """Half of its grace is over."""
        ...

    def kill(self, attempt: "Attempt") -> None:
        """Its grace is over: end it, whatever else that ends."""
        ...


class Attempt(Struct, eq=False):
    """Times are monotonic seconds. `lease_ends` counts from before the claim or renewal was asked for.

    `inputs` are the paths of its input files by name, once they are here; `place` is where its executor keeps it.
    `lines` are still to be sent, `lines_sent` counts those before them.
    `begun`: it was handed to its handler, or is about to be; `confirmed` is done once the engine has heard so.
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
        attempt = cls(claim, scratch, asked_at + claim.lease_seconds, NEVER)
        attempt.count_from(now)
        return attempt

    def count_from(self, now: float) -> None:
        """Let its timeout begin."""
        timeout = self.claim.timeout_seconds
        self.timeout_at = NEVER if timeout is None else now + timeout

    @property
    def folder(self) -> str:
        """Where its files are, once it has any."""
        return folder_of(self.scratch, self.claim.job, self.claim.fence)

    @property
    def lease(self) -> Lease:
        return Lease(self.claim.job, self.claim.fence)

    def take_progress(self) -> Lease:
        """The lease with what is new to tell."""
        progress, self.progress = self.progress, None
        return Lease(self.claim.job, self.claim.fence, progress, self.begun)

    def renewed(self, lease: Lease, lease_ends: float) -> None:
        """The engine has heard what the lease said."""
        self.lease_ends = lease_ends
        if self.confirmed is not None and lease.begun and not self.confirmed.done():
            self.confirmed.set_result(None)

    def stop(self, reason: StopReason, now: float, grace: float) -> None:
        """Begin to stop it; only a loss outranks the reason it is being stopped for already."""
        if reason is StopReason.LOST or self.reason is None:
            self.reason = reason
        if not self.stopped_at:
            self.stopped_at, self.kill_at = now, now + grace
            if self.bearer is not None:
                self.bearer.ask(self)
        self.kill_at = min(self.kill_at, now + grace)

    def __str__(self) -> str:
        return f"job {self.claim.job} ({self.claim.type}, attempt {self.claim.attempt})"


# -- how it ended


class Returned(Struct, frozen=True, gc=False):
    """With a result, and perhaps output files: None when there are none, else their declared content types."""

    result: bytes
    outputs: Mapping[str, str] | None = None


class Failed(Struct, frozen=True):
    """With an error of its own."""

    error: JobError


class Halted(Struct, frozen=True):
    """Because it was asked to, or before it had started."""


class Displaced(Struct, frozen=True):
    """With its executor, which was killed because another job there did not stop when asked."""


class Cause(StrEnum):
    """Why an executor ended by itself, or had to be."""

    CRASH = "crash"
    MEMORY = "memory"


class Died(Struct, frozen=True):
    """With its executor. `together` is how many jobs that held: alone, an attempt is surely the guilty one."""

    cause: Cause
    how: str
    together: int


Ending = Returned | Failed | Halted | Displaced | Died
End = tuple[Attempt, Ending]


# -- what is told


class Release(Struct, frozen=True):
    """Give it back unharmed. With `suspect` it runs alone next time: something happened to its whole executor."""

    suspect: bool = False


class Discard(Struct, frozen=True):
    """Say nothing: it belongs to somebody else."""


Telling = Outcome | Release | Discard


def conclude(claim: Claim, ending: Ending, reason: StopReason | None, outputs: tuple[FileLink, ...] = ()) -> Telling:
    """What to tell of an attempt that was being stopped for `reason`, or was not (None).

    Work that came to its end just before it was stopped counts as it ended; only a lost lease outranks it.
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
            # Alone, it is in no other job's way: nobody's timeouts can restart it again and again.
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
    """A plain error for an outcome that cannot be recorded as it is; None where there is nothing to leave out."""
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
    """The engine's lease and heartbeat, and what follows from them.

    `skew` is kept clear before the end of a lease; `notice` is how long before that a job is asked to stop.
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
        """How long a claim may wait for work: a lease counts from the asking, so the wait is taken off it."""
        return self.lease / 3

    def gone(self, lease_ends: float) -> float:
        """From when on nothing may be said or done under the lease."""
        return lease_ends - self.skew

    def given_up(self, lease_ends: float) -> float:
        """From when on an end is no longer told. Until then it is, also beyond the lease: the fence guards the job."""
        return lease_ends + self.lease

    def gone_by(self, now: float) -> float:
        """Leases that end by then are gone now."""
        return now + self.skew

    def late_by(self, now: float) -> float:
        """For leases that end by then it is time to stop."""
        return now + self.skew + self.notice

    def stop_at(self, lease_ends: float) -> float:
        """When to ask an unrenewed job to stop, so that it can before the lease is gone."""
        return lease_ends - self.skew - self.notice


class Wakeup:
    """Unlike an Event it does not stay set: who was not waiting has missed it, and looks before waiting."""

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
