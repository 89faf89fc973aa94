"""The client's moves: submit, get, wait, list, cancel, retry."""

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.engine.by_shard import each, split
from penstock.engine.catalog import Reading
from penstock.engine.files import job_prefix
from penstock.engine.repeating import Repeating
from penstock.engine.submit import fingerprint, new_job, same_again
from penstock.engine.together import Together
from penstock.engine.why import why_it_waits
from penstock.model.errors import Conflict, KeyConflict, NotFound, PenstockError, Unavailable
from penstock.model.ids import JobId, ShardId, new_job_id, shard_of
from penstock.model.job import Job, JobFilter, NewJob, Submission
from penstock.model.timing import to_millis
from penstock.model.wire import JobItem, JobPage, LogPage, SubmitRequest, job_item

if TYPE_CHECKING:
    from penstock.engine import Engine


SLICE_JOBS = 250


class Jobs:
    """Jobs as their clients see them."""

    def __init__(self, engine: "Engine", chance: random.Random) -> None:
        self._engine = engine
        self._store = engine.store
        self._files = engine.files
        self._chance = chance
        self._repeating = Repeating(engine)
        self._inserting: dict[ShardId, Together[NewJob, Submission]] = {}

    async def submit(self, requests: Sequence[SubmitRequest]) -> list[Submission | PenstockError]:
        """Make each job durable, or refuse it by itself. One answer each, in order.

        A long batch goes in slices: while the store writes one, the next is prepared.
        """
        if len(requests) <= SLICE_JOBS:
            return await self._submit(requests)
        slices = [requests[first : first + SLICE_JOBS] for first in range(0, len(requests), SLICE_JOBS)]
        return list(chain.from_iterable(await asyncio.gather(*map(self._submit, slices))))

    async def _submit(self, requests: Sequence[SubmitRequest]) -> list[Submission | PenstockError]:
        reading, now = await self._engine.catalog.read(), self._engine.clock.now()
        prepared = [await self._prepare(request, reading, now) for request in requests]
        accepted = [job for job in prepared if isinstance(job, NewJob)]
        submitted = iter(await self._insert(accepted))
        return [_answer(next(submitted)) if isinstance(job, NewJob) else job for job in prepared]

    async def _prepare(
        self, request: SubmitRequest, reading: Reading, now: datetime
    ) -> NewJob | Submission | PenstockError:
        """A job to insert with the others; one that repeats is made at once, by its schedule's first tick."""
        if request.interval is not None:
            return await self._repeating.submit(request, self._new_id(now))
        return await self._prepare_one(request, reading, now)

    async def _prepare_one(self, request: SubmitRequest, reading: Reading, now: datetime) -> NewJob | PenstockError:
        try:
            job = self._resolve(request, reading, now)
            if request.inputs or len(request.params) > self._engine.settings.limits.inline_bytes:
                job = await self._keep_objects(job, request)
            return replace(job, fingerprint=fingerprint(request, job.inputs)) if job.key is not None else job
        except PenstockError as refusal:
            return refusal

    def _resolve(self, request: SubmitRequest, reading: Reading, now: datetime) -> NewJob:
        declared = reading.type(request.type, allow_unknown=self._engine.settings.server.allow_unknown_types)
        job = new_job(self._new_id(now, request.idempotency_key), request, declared, now)
        self._engine.catalog.check(declared, bytes(request.params))
        return job

    async def _keep_objects(self, job: NewJob, request: SubmitRequest) -> NewJob:
        job = replace(job, inputs=await self._files.adopt(job.id, request.inputs))
        if len(request.params) <= self._engine.settings.limits.inline_bytes:
            return job
        link = await self._files.keep_value(f"{job_prefix(job.id)}/params", bytes(request.params))
        return replace(job, params=None, params_object=link)

    def _new_id(self, now: datetime, key: str | None = None) -> JobId:
        return new_job_id(to_millis(now), self._store.home(key), self._chance)

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        """Each shard's jobs by themselves: what one does not answer for is unavailable, and never tried elsewhere."""
        if not jobs:
            return []
        parts = list(split(jobs, lambda job: shard_of(job.id)).values())
        answers: dict[JobId, Submission | Unavailable] = {}
        for part, answer in zip(parts, await each(parts, self._insert_together), strict=True):
            told: Sequence[Submission | Unavailable] = (
                [answer] * len(part) if isinstance(answer, Unavailable) else answer
            )
            answers.update(zip([job.id for job in part], told, strict=True))
        return [answers[job.id] for job in jobs]

    async def _insert_together(self, jobs: Sequence[NewJob]) -> list[Submission]:
        """With what other callers have for the same shard."""
        shard = shard_of(jobs[0].id)
        if (inserting := self._inserting.get(shard)) is None:
            inserting = self._inserting[shard] = Together(self._insert_part)
        return await inserting.ask(jobs)

    async def _insert_part(self, jobs: Sequence[NewJob]) -> list[Submission]:
        jobs = await self._engine.posting.mark(jobs)
        submissions = await self._store.submit(jobs, self._engine.tickets.first_for)
        created = [submission for submission in submissions if submission.event is not None]
        await self._engine.posting.post(jobs, [made.job for made in created])
        self._engine.moved([made.event for made in created if made.event is not None])
        return submissions

    async def get(self, job: JobId) -> Job:
        (found,) = await self._store.get([job])
        if found is None:
            raise NotFound(f"there is no job {job}; it may have been removed after its retention")
        return found

    async def wait(self, job: JobId, span: timedelta) -> Job:
        """The job once it has ended, or as it is after `span`."""
        return await self._engine.watch.until_ended(job, lambda: self.get(job), span)

    async def item(self, job: Job) -> JobItem:
        """The public face of a job, with large params and results read in."""
        if job.params is None and job.params_object is not None:
            job = replace(job, params=await self._files.read_value(job.params_object))
        if job.result is None and job.result_object is not None:
            job = replace(job, result=await self._files.read_value(job.result_object))
        return job_item(job, why_it_waits(job, await self._engine.catalog.read(), await self._store.now()))

    async def cancel(self, job: JobId, *, force: bool = False) -> Job:
        """Cancel a waiting job, ask a running one to stop (`force`: end it now), leave an ended one as it is."""
        (cancellation,) = await self._store.cancel([job], force=force)
        if cancellation.job is None:
            raise NotFound(f"there is no job {job}; it may have been removed after its retention")
        if cancellation.event is not None:
            self._engine.moved([cancellation.event])
        return cancellation.job

    async def retry(self, job: JobId) -> Job:
        """A new job that asks for what an ended one asked for."""
        old = await self.get(job)
        if not old.ended:
            raise Conflict(f"job {job} is {old.state}: only an ended job can be retried; cancel it first")
        again = same_again(self._new_id(self._engine.clock.now()), old)
        if old.params_object is not None:
            value = await self._files.read_value(old.params_object)
            again = replace(again, params_object=await self._files.keep_value(f"{job_prefix(again.id)}/params", value))
        again = replace(again, inputs=await self._files.inherit(again.id, old.inputs))
        (made,) = await self._insert([again])
        if isinstance(made, Unavailable):
            raise made
        return made.job

    async def log(self, job: JobId, after: int, limit: int) -> LogPage:
        """What a job wrote, after a position."""
        await self.get(job)
        lines, position = await self._store.read_log(job, after, limit)
        return LogPage(tuple(lines), position)

    async def list(self, where: JobFilter, cursor: str | None, limit: int) -> JobPage:
        """Newest first; large params and results are left out."""
        page = await self._store.page(where, cursor, limit)
        reading, now = await self._engine.catalog.read(), await self._store.now()
        items = tuple(job_item(job, why_it_waits(job, reading, now)) for job in page.jobs)
        return JobPage(items, page.cursor, page.missing)


def _answer(submission: Submission | Unavailable) -> Submission | PenstockError:
    if isinstance(submission, Submission) and submission.conflict:
        return KeyConflict(f"the idempotency key was used for job {submission.job.id}, which asked for something else")
    return submission
