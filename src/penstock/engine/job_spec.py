"""The job that a request describes, with every default resolved; or why it is refused. Pure."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from penstock.model.clock import seconds
from penstock.model.declarations import plain_type
from penstock.model.errors import Invalid, InvalidParams, NotFound
from penstock.model.ids import JobId
from penstock.model.job import FileLink, Job, NewJob
from penstock.model.retry import NAMED, Retry, RetryKind
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.workers import JobType


def new_job(job: JobId, request: SubmitRequest, declared: JobType, now: datetime, ring: int | None = None) -> NewJob:
    """The job that was asked for, its key placed by a ring. Large params and inputs are still to be stored."""
    if request.scheduled_at is not None or request.expires_at is not None:
        _check_times(request, now)
    params = bytes(request.params)
    if not params.startswith(b"{") and not params.lstrip().startswith(b"{"):
        raise InvalidParams("params: expected a JSON object of named parameters")
    return NewJob(
        id=job,
        type=declared.name,
        queue=request.queue or declared.queue,
        priority=declared.priority if request.priority is None else request.priority,
        params=params,
        retry=declared.retry if request.retry_policy is None else retry_asked(request.retry_policy),
        timeout=_span(
            declared.timeout_seconds if request.timeout_seconds is msgspec.UNSET else request.timeout_seconds
        ),
        delay=None if request.delay_seconds is None else seconds(request.delay_seconds),
        due_at=request.scheduled_at,
        expires_at=request.expires_at,
        tags=request.tags,
        key=request.idempotency_key,
        ring=ring,
    )


def same_again(job: JobId, old: Job) -> NewJob:
    """A new job like an ended one: due now, never expiring. Inputs are still to be copied."""
    return NewJob(
        id=job,
        type=plain_type(old.type),
        queue=old.queue,
        priority=old.priority,
        params=old.params,
        params_object=old.params_object,
        retry=old.retry,
        timeout=old.timeout,
        tags=old.tags,
        retry_of=old.id,
    )


def missing_job(job: JobId) -> NotFound:
    return NotFound(f"there is no job {job}; it may have been removed after its retention")


def fingerprint(request: SubmitRequest, inputs: Sequence[FileLink]) -> bytes:
    """A digest of everything that was asked for, except the key itself; of inputs their content, not their upload."""
    contents = {file.name: file.object.digest for file in inputs}
    asked = msgspec.json.encode(replace(request, idempotency_key=None, inputs=contents))
    return hashlib.sha256(asked).digest()[:16]


def _check_times(request: SubmitRequest, now: datetime) -> None:
    if request.delay_seconds is not None and request.scheduled_at is not None:
        raise Invalid("give either delay_seconds or scheduled_at, not both")
    if request.expires_at is None:
        return
    due = request.scheduled_at or now + seconds(request.delay_seconds or 0)
    if request.expires_at <= max(due, now):
        raise Invalid(f"expires_at: {request.expires_at.isoformat()} is not after the job is due; it could never run")


def retry_asked(asked: Retry | RetryKind) -> Retry:
    """The policy, or the one that a bare name stands for."""
    return NAMED[asked] if isinstance(asked, RetryKind) else asked


@lru_cache(maxsize=256)
def _span(value: float | None) -> timedelta | None:
    """One object for all jobs with the same timeout: a store writes it once."""
    return None if value is None else seconds(value)
