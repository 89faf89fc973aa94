"""Conversions between values and the columns of SQL stores: NULL, JSON, milliseconds."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import EARLIEST, LATEST, from_millis, millis, to_millis
from penstock.model.errors import Invalid, MapChanged
from penstock.model.ids import JobId
from penstock.model.job import FileLink, Job, JobError, LogLine, ObjectLink, Progress
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.model.schedule import Schedule
from penstock.model.workers import DrainRequest, Seen, Worker

Row = tuple[Any, ...]
T = TypeVar("T")

logger = logging.getLogger("penstock.store")

LONGEST_SPAN = 10**15
"""In milliseconds, far beyond every limit on a span, so that every value of a column can be read."""

NO_LIMIT = 2**31

_DEFAULT_RETRY = Retry()
_encode = msgspec.json.Encoder().encode
_retry = msgspec.json.Decoder(Retry)
_error = msgspec.json.Decoder(JobError)
_progress = msgspec.json.Decoder(Progress)
_object = msgspec.json.Decoder(ObjectLink)
_files = msgspec.json.Decoder(tuple[FileLink, ...])
_tags = msgspec.json.Decoder(tuple[str, ...])
_schedule = msgspec.json.Decoder(Schedule)
_worker = msgspec.json.Decoder(Worker)


def retry_of(retry: Retry) -> str | None:
    """A retry policy as a column; None for the default."""
    return None if retry == _DEFAULT_RETRY else text_of(retry)


def policy_of(text: str | None) -> Retry:
    """A retry policy from its column."""
    return decoded(_retry, text) or _DEFAULT_RETRY


def job_of(row: Row) -> Job:
    """A job from the columns that statements give for whole jobs, in their order; ids are JobIds."""
    (
        _seq, job, type_name, queue, state, priority, attempt, fence, losses, due_at, created_at, started_at,
        completed_at, expires_at, cancel_requested_at, timeout, worker, reason, retried, retry, tags, progress, error,
        inputs, outputs, params_object, result_object, params, result, schedule, tick_at, interval,
        version,
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
        version=version,
        losses=losses,
        retry=policy_of(retry),
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
    return None if value is None else timedelta(milliseconds=min(value, LONGEST_SPAN))


def schedule_of(intention: str) -> Schedule:
    """A schedule from its JSON. Its instants are clamped to the accepted range, like those of columns."""
    schedule = _schedule.decode(intention)
    return replace(schedule, start_at=_clamped(schedule.start_at), end_at=_clamped(schedule.end_at))


def seen_scope(seen: Seen, limit: int | None) -> dict[str, int]:
    """The parameters of the statement `workers`."""
    wanted = NO_LIMIT if limit is None else limit
    return {"after": to_millis(seen.after), "until": to_millis(seen.until), "limit": wanted}


_AS_LONG_AS_IT_TAKES = to_millis(LATEST)


def drain_end(patience: timedelta | None, now: int) -> int:
    """The column `drain_until` of a request that is made now."""
    return _AS_LONG_AS_IT_TAKES if patience is None else min(_AS_LONG_AS_IT_TAKES - 1, now + millis(patience))


def drain_request(until: int | None, now: int) -> DrainRequest | None:
    """The request of the column `drain_until`, with what is left of its patience."""
    if until is None or until == _AS_LONG_AS_IT_TAKES:
        return None if until is None else DrainRequest()
    return DrainRequest(max(0, until - now) / 1000)


def workers_of(rows: Iterable[Row]) -> list[Worker]:
    """Workers by id, from what each reported and when. One of another version that cannot be read is left out."""
    found = []
    for reported, seen_at in rows:
        try:
            found.append(replace(_worker.decode(reported), seen_at=from_millis(seen_at)))
        except (msgspec.ValidationError, Invalid) as error:
            logger.warning("a worker's report cannot be read and is left out: %s", error)
    return sorted(found, key=lambda worker: worker.id)


def _clamped(at: datetime | None) -> datetime | None:
    return None if at is None else min(max(at, EARLIEST), LATEST)


class LogEnd(Struct, frozen=True):
    """The last line of a log: its position, the bytes up to and with it, and its number among those of this attempt."""

    position: int = 0
    size: int = 0
    number: int = 0


def new_lines(
    end: LogEnd, lines: Sequence[LogLine], cap: int, first: int | None
) -> Iterator[tuple[int, int, int, LogLine]]:
    """Position, size, number and line of each line to store: without those sent before, up to the cap.

    Lines without a number (`first` None) get 0: whether they were sent before is unknown.
    """
    known = 0 if first is None else max(0, end.number - first)
    position, size = end.position, end.size
    for index, line in enumerate(lines[known:], known):
        if size >= cap:
            return
        position += 1
        size += len(line.text.encode())
        yield position, size, 0 if first is None else first + index + 1, line


RETRY_AFTER_SECONDS = 1


class Admission(Struct, frozen=True):
    """What a shard accepts: closed, no new job or schedule; open, no key that was placed by another ring."""

    ring: int
    closed: bool

    def takes(self, ring: int | None) -> bool:
        """Whether a key placed by the ring of this epoch is accepted; None: its shard depends on no ring."""
        return not self.closed and (ring is None or ring == self.ring)


def misplaced(schedule: str) -> MapChanged:
    return MapChanged(
        f"this is not the place of schedule {schedule!r} any more, the shard map has changed; try again",
        retry_after=RETRY_AFTER_SECONDS,
    )
