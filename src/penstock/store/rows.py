"""Between a job and its row, as SQL stores keep it: what is NULL, what is JSON, what is milliseconds."""

from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from penstock.model.ids import JobId
from penstock.model.job import FileLink, Job, JobError, ObjectLink, Progress
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.model.timing import from_millis, to_millis

Row = tuple[Any, ...]
T = TypeVar("T")

_DEFAULT_RETRY = Retry()
_encode = msgspec.json.Encoder().encode
_retry = msgspec.json.Decoder(Retry)
_error = msgspec.json.Decoder(JobError)
_progress = msgspec.json.Decoder(Progress)
_object = msgspec.json.Decoder(ObjectLink)
_files = msgspec.json.Decoder(tuple[FileLink, ...])
_tags = msgspec.json.Decoder(tuple[str, ...])


def retry_of(retry: Retry) -> str | None:
    """A retry policy as it is kept; None for the default."""
    return None if retry == _DEFAULT_RETRY else text_of(retry)


def job_of(row: Row) -> Job:
    """A job from the columns that statements give for whole jobs, in their order; ids are JobIds."""
    (
        _seq, job, type_name, queue, state, priority, attempt, fence, losses, due_at, created_at, started_at,
        completed_at, expires_at, cancel_requested_at, timeout, worker, reason, retried, retry, tags, progress, error,
        inputs, outputs, params_object, result_object, params, result, schedule, tick_at, interval,
    ) = row  # fmt: skip
    return Job(
        id=JobId(job),
        type=type_name,
        queue=queue,
        state=State(state),
        reason=reason,
        priority=priority,
        params=params,
        params_object=decoded(_object, params_object),
        result=result,
        result_object=decoded(_object, result_object),
        error=decoded(_error, error),
        progress=decoded(_progress, progress),
        attempt=attempt,
        fence=fence,
        losses=losses,
        retry=decoded(_retry, retry) or _DEFAULT_RETRY,
        timeout=span(timeout),
        due_at=from_millis(due_at),
        created_at=from_millis(created_at),
        started_at=instant(started_at),
        completed_at=instant(completed_at),
        expires_at=instant(expires_at),
        cancel_requested_at=instant(cancel_requested_at),
        tags=decoded(_tags, tags) or (),
        inputs=decoded(_files, inputs) or (),
        outputs=decoded(_files, outputs) or (),
        worker=worker,
        retry_of=retried,
        schedule=schedule,
        tick_at=instant(tick_at),
        interval=span(interval),
    )


def text_of(value: object) -> str | None:
    """A structured value as JSON; None when there is nothing in it."""
    return _encode(value).decode() if value else None


def decoded(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    return None if text is None else decoder.decode(text)


def object_of(text: str | None) -> ObjectLink | None:
    return decoded(_object, text)


def files_of(text: str | None) -> tuple[FileLink, ...]:
    return decoded(_files, text) or ()


def tags_of(text: str | None) -> tuple[str, ...]:
    return decoded(_tags, text) or ()


def instant(value: int | None) -> datetime | None:
    return None if value is None else from_millis(value)


def optional_millis(at: datetime | None) -> int | None:
    return None if at is None else to_millis(at)


def span(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=value)
