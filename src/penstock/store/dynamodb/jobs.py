"""Whole jobs from heads, with the params and outcomes that lie apart, and the progress in the sheets of workers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec
from msgspec import Raw

from penstock.model.clock import from_millis
from penstock.model.ids import JobId
from penstock.model.job import JSON_NULL, Claim, Job, JobError, Progress
from penstock.model.lifecycle import State
from penstock.store.dynamodb.heads import Heads
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import params_key
from penstock.store.dynamodb.sheets import Sheet, Sheets
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.values import Item, ItemKey
from penstock.store.rows import files_of, instant, object_of, policy_of, span

_error = msgspec.json.Decoder(JobError)
_progress = msgspec.json.Decoder(Progress)

Apart = Mapping[ItemKey, Item]


class JobReader:
    """Reads whole jobs."""

    def __init__(self, table: DynamoTable, heads: Heads, sheets: Sheets) -> None:
        self._table = table
        self._heads = heads
        self._sheets = sheets

    async def get(self, jobs: Sequence[JobId]) -> list[Job | None]:
        found = await self.whole((await self._heads.read(jobs)).values())
        return [found.get(job) for job in jobs]

    async def whole(self, heads: Iterable[Head]) -> dict[JobId, Job]:
        """The jobs of these heads."""
        heads = list(heads)
        apart = await self._read_apart(key for head in heads for key in _keys_apart(head))
        running = {head.worker for head in heads if head.state is State.RUNNING and head.worker is not None}
        sheets = await self._sheets.read(running) if running else {}
        return {head.id: job_of(head, apart, sheets.get(head.worker or "")) for head in heads}

    async def claims(self, heads: Sequence[Head], leases: Iterable[timedelta]) -> list[Claim]:
        """What workers get of jobs that they have claimed."""
        apart = await self._read_apart(params_key(head.id) for head in heads if head.origin.params_apart)
        return [
            _claim_of(head, _params(head, apart), lease.total_seconds())
            for head, lease in zip(heads, leases, strict=True)
        ]

    async def _read_apart(self, keys: Iterable[ItemKey]) -> Apart:
        wanted = list(keys)
        return await self._table.batch_get(wanted) if wanted else {}


def _keys_apart(head: Head) -> Iterator[ItemKey]:
    if head.origin.params_apart:
        yield params_key(head.id)
    for name in {head.course.result_apart, head.course.error_apart}:
        if name is not None:
            yield ItemKey(head.id, name)


def job_of(head: Head, apart: Apart, sheet: Sheet | None) -> Job:
    """A job from its head, the items that it names, and the sheet of the worker that runs it."""
    origin, course = head.origin, head.course
    return Job(
        id=head.id,
        type=head.type,
        queue=head.queue,
        state=head.state,
        reason=course.reason,
        priority=head.priority,
        params=_params(head, apart),
        params_object=object_of(origin.params_object),
        result=course.result if course.result_apart is None else _apart(apart, head, course.result_apart, "result"),
        result_object=object_of(course.result_object),
        error=_job_error(head, apart),
        progress=_job_progress(head, sheet),
        attempt=course.attempt,
        fence=head.fence,
        version=head.version,
        losses=course.losses,
        retry=policy_of(origin.retry),
        timeout=span(origin.timeout),
        due_at=from_millis(head.due),
        created_at=from_millis(origin.created),
        started_at=instant(course.started),
        completed_at=instant(course.completed),
        expires_at=instant(head.expires),
        cancel_requested_at=instant(course.cancel_requested),
        tags=origin.tags,
        inputs=files_of(origin.inputs),
        outputs=files_of(course.outputs),
        worker=head.worker,
        retry_of=None if origin.retry_of is None else JobId(origin.retry_of),
        schedule=origin.schedule,
        tick_at=instant(origin.tick_at),
        interval=span(origin.interval),
    )


def _params(head: Head, apart: Apart) -> bytes | None:
    origin = head.origin
    if origin.params_apart:
        found: bytes = apart[params_key(head.id)]["d"]
        return found
    return None if origin.params_absent else origin.params or JSON_NULL


def _apart(apart: Apart, head: Head, sort_key: str, name: str) -> bytes | None:
    found: bytes | None = apart.get(ItemKey(head.id, sort_key), {}).get(name)
    return found


def _job_error(head: Head, apart: Apart) -> JobError | None:
    course = head.course
    raw = course.error if course.error_apart is None else _apart(apart, head, course.error_apart, "error")
    return None if raw is None else _error.decode(raw)


def _job_progress(head: Head, sheet: Sheet | None) -> Progress | None:
    lease = None if sheet is None else sheet.lease(head.id, head.fence)
    raw = lease.progress if lease is not None and lease.progress is not None else head.course.progress
    return None if raw is None else _progress.decode(raw)


def _claim_of(head: Head, params: bytes | None, lease_seconds: float) -> Claim:
    origin, course = head.origin, head.course
    return Claim(
        job=head.id,
        type=head.type,
        queue=head.queue,
        attempt=course.attempt,
        fence=head.fence,
        params=Raw(JSON_NULL if params is None else params),
        params_object=object_of(origin.params_object),
        timeout_seconds=None if origin.timeout is None else origin.timeout / 1000,
        lease_seconds=lease_seconds,
        inputs=files_of(origin.inputs),
        tags=origin.tags,
        alone=course.alone,
        alone_in_worker=course.alone_in_worker,
        priority=head.priority,
        waited_seconds=max(0, (course.started or 0) - head.due) / 1000,
    )
