"""From how an attempt ended here to what the engine is told. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Raw, Struct

from penstock.model.job import NEVER_RETRIED, Claim, ErrorCode, FileLink, JobError
from penstock.model.text import readable
from penstock.model.wire import Outcome
from penstock.worker.agent.attempt import Attempt, StopReason

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
