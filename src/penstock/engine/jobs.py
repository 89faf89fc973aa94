"""The client's moves: submit, get, wait, list, cancel, retry."""

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.engine.batch import Batches, BatchKey, SubmitOutcome
from penstock.engine.files import job_prefix
from penstock.engine.inserting import Insertion
from penstock.engine.preparing import Preparation
from penstock.engine.submit import same_again
from penstock.engine.why import WaitReasons
from penstock.model.errors import Conflict, KeyConflict, MapChanged, NotFound, Unavailable
from penstock.model.ids import JobId
from penstock.model.job import Job, JobFilter, NewJob
from penstock.model.submission import Known, Submission
from penstock.model.wire import JobItem, JobPage, LogPage, SubmitRequest, job_item

if TYPE_CHECKING:
    from penstock.engine import Engine

PLACED_AGAIN = 3
"""How often a job is placed again because the shard map has changed."""


class Jobs:
    """Jobs as their clients see them."""

    def __init__(self, engine: "Engine", rng: random.Random) -> None:
        self._engine = engine
        self._store = engine.store
        self._files = engine.files
        self._preparing = Preparation(engine, rng)
        self._inserting = Insertion(engine)
        self._reasons = WaitReasons()
        self._batches = Batches(engine, self._preparing, self._inserting, self.submit)

    async def submit(self, requests: Sequence[SubmitRequest]) -> list[SubmitOutcome]:
        """Make each job durable, or refuse it by itself. One answer each, in order."""
        outcomes = await self._submit(requests)
        for _ in range(PLACED_AGAIN):
            if MapChanged not in map(type, outcomes):
                break
            moved = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, MapChanged)]
            for index, outcome in zip(moved, await self._submit([requests[index] for index in moved]), strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _submit(self, requests: Sequence[SubmitRequest]) -> list[SubmitOutcome]:
        prepared = await self._preparing.prepare(requests)
        answers = iter(await self._inserting.insert([job for job in prepared if isinstance(job, NewJob)]))
        return [_answer(next(answers)) if isinstance(job, NewJob) else job for job in prepared]

    async def submit_batch(self, requests: Mapping[int, SubmitRequest], key: BatchKey) -> dict[int, SubmitOutcome]:
        """`submit`, by the places of the jobs in their batch; under the same key nothing is added twice."""
        return await self._batches.submit(requests, key)

    async def get(self, job: JobId) -> Job:
        (found,) = await self._store.get([job])
        if found is None:
            raise NotFound(f"there is no job {job}; it may have been removed after its retention")
        return found

    async def wait(self, job: JobId, span: timedelta) -> Job:
        """The job once it has ended, or as it is after `span`."""
        return await self._engine.job_waiters.wait_until_ended(job, lambda: self.get(job), span)

    async def item(self, job: Job, seen_at: datetime | None = None) -> JobItem:
        """The public face of a job, with large params and results read in; as it was at `seen_at`, else as of now."""
        if job.params is None and job.params_object is not None:
            job = replace(job, params=await self._files.read_value(job.params_object))
        if job.result is None and job.result_object is not None:
            job = replace(job, result=await self._files.read_value(job.result_object))
        reading = await self._engine.catalog.read()
        return job_item(job, self._reasons.find(job, reading, seen_at or await self._store.now()))

    async def cancel(self, job: JobId, *, force: bool = False) -> Job:
        """Cancel a waiting job, ask a running one to stop (`force`: end it now), leave an ended one as it is."""
        (cancellation,) = await self._store.cancel([job], force=force)
        if cancellation.job is None:
            raise NotFound(f"there is no job {job}; it may have been removed after its retention")
        if cancellation.event is not None:
            self._engine.publish_events([cancellation.event])
        return cancellation.job

    async def retry(self, job: JobId) -> Job:
        """A new job that asks for what an ended one asked for."""
        old = await self.get(job)
        if not old.ended:
            raise Conflict(f"job {job} is {old.state}: only an ended job can be retried; cancel it first")
        made = await self._submit_again(old)
        for _ in range(PLACED_AGAIN):
            if isinstance(made, MapChanged):
                made = await self._submit_again(old)
        if isinstance(made, Unavailable):
            raise made
        return made.job

    async def _submit_again(self, old: Job) -> Submission | Unavailable:
        again = same_again(self._preparing.new_id(), old)
        if old.params_object is not None:
            value = await self._files.read_value(old.params_object)
            again = replace(again, params_object=await self._files.keep_value(f"{job_prefix(again.id)}/params", value))
        again = replace(again, inputs=await self._files.inherit(again.id, old.inputs))
        (made,) = await self._inserting.insert([again])
        return made

    async def log(self, job: JobId, after: int, limit: int) -> LogPage:
        """What a job wrote, after a position."""
        await self.get(job)
        lines, position = await self._store.read_log(job, after, limit)
        return LogPage(tuple(lines), position)

    async def list(self, where: JobFilter, cursor: str | None, limit: int) -> JobPage:
        """Newest first; large params and results are left out."""
        page = await self._store.page(where, cursor, limit)
        reading, now = await self._engine.catalog.read(), await self._store.now()
        items = tuple(job_item(job, self._reasons.find(job, reading, now)) for job in page.jobs)
        return JobPage(items, page.cursor, page.missing)


def _answer(submission: Submission | Unavailable) -> SubmitOutcome:
    if isinstance(submission, Known) and submission.conflict:
        return KeyConflict(f"the idempotency key was used for job {submission.id}, which asked for something else")
    return submission
