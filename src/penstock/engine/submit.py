"""Submitting: jobs are made of requests, with params checked and large values stored, and inserted in batches."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import TypeAlias

from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.files import job_prefix
from penstock.engine.job_spec import fingerprint, new_job
from penstock.engine.parts import EngineParts
from penstock.engine.repeats import RepeatedSubmits
from penstock.model.clock import to_millis
from penstock.model.errors import PenstockError, Unavailable
from penstock.model.ids import JobId, Series, ShardId, new_job_id, shard_of
from penstock.model.job import NewJob
from penstock.model.lifecycle import State
from penstock.model.submission import Held, Inserted, Misplaced, Submission
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.workers import JobType
from penstock.store.answers import gather_answers, group_by, require
from penstock.store.batcher import Batcher

Prepared: TypeAlias = NewJob | Submission | PenstockError
"""A job to insert; one that the first tick of its schedule has made already; or why the request is refused."""

ANY_ID: Iterable[None] = repeat(None)


class Preparation:
    """Makes jobs of requests, and the ids of new jobs."""

    def __init__(self, parts: EngineParts, repeats: RepeatedSubmits) -> None:
        self._parts = parts
        self._repeats = repeats
        self._inline_bytes = parts.settings.limits.inline_bytes

    def new_id(self, key: str | None = None, now: datetime | None = None) -> JobId:
        at_millis = to_millis(now or self._parts.clock.now())
        return new_job_id(at_millis, self._parts.store.shard_for(key), self._parts.rng)

    def new_series(self, key: str) -> tuple[Series, int | None]:
        """Ids for the jobs of a batch on the shard of its key, and the epoch of the ring that chose the shard."""
        parts = self._parts
        series = Series.new(to_millis(parts.clock.now()), parts.store.shard_for(key), parts.rng)
        return series, parts.store.epoch(key)

    async def prepare(self, requests: Sequence[SubmitRequest], ids: Iterable[JobId | None] = ANY_ID) -> list[Prepared]:
        """One answer each, in order. A job without an id gets one, on the shard of its key if it has a key."""
        self._parts.catalog.require_types()
        resolver = _TypeResolver(self._parts, self.new_id, await self._parts.catalog.read())
        return [
            await self._with_more(request, job, resolver) if self._has_more(request) else resolver.resolve(request, job)
            for request, job in zip(requests, ids, strict=False)
        ]

    def _has_more(self, request: SubmitRequest) -> bool:
        return (
            request.idempotency_key is not None
            or request.interval is not None
            or bool(request.inputs)
            or len(request.params) > self._inline_bytes
        )

    async def _with_more(self, request: SubmitRequest, job: JobId | None, resolver: "_TypeResolver") -> Prepared:
        if request.interval is not None:
            return await self._repeats.submit(request, job or self.new_id())
        new = resolver.resolve(request, job)
        try:
            return await self._complete(new, request) if isinstance(new, NewJob) else new
        except PenstockError as error:
            return error

    async def _complete(self, new: NewJob, request: SubmitRequest) -> NewJob:
        """The job with its large values stored, and with a fingerprint if it has a key."""
        files = self._parts.files
        if request.inputs:
            new = replace(new, inputs=await files.adopt(new.id, request.inputs))
        if len(request.params) > self._inline_bytes:
            link = await files.keep_value(f"{job_prefix(new.id)}/params", bytes(request.params))
            new = replace(new, params=None, params_object=link)
        return replace(new, fingerprint=fingerprint(request, new.inputs)) if new.key is not None else new


class _TypeResolver:
    """Resolves the requests of one call, looking up once what they have in common."""

    def __init__(
        self, parts: EngineParts, new_id: Callable[[str | None, datetime], JobId], reading: CatalogReading
    ) -> None:
        self._new_id = new_id
        self._epoch = parts.store.epoch
        self._catalog = parts.catalog
        self._allow_unknown = parts.settings.server.allow_unknown_types
        self._reading = reading
        self._now = parts.clock.now()
        self._types: dict[str, JobType] = {}

    def resolve(self, request: SubmitRequest, job: JobId | None) -> NewJob | PenstockError:
        """The job, without what has to be stored elsewhere first; or why the request is refused."""
        try:
            declared = self._types.get(request.type)
            if declared is None:
                declared = self._reading.type(request.type, allow_unknown=self._allow_unknown)
                self._types[request.type] = declared
            # The id and the epoch belong together: nothing may be awaited between the two.
            key = request.idempotency_key
            job, ring = job or self._new_id(key, self._now), None if key is None else self._epoch(key)
            new = new_job(job, request, declared, self._now, ring)
            if new.params is not None and declared.params_schema is not None:
                self._catalog.check(declared, new.params)
            return new
        except PenstockError as error:
            return error


_REFUSED = frozenset({Held, Misplaced})


class Insertion:
    """Inserts jobs, with one write at a time to each shard; the jobs of concurrent calls go with the next write.

    Jobs with keys have a batcher of their own: their write may wait for a key that another transaction holds.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._store = parts.store
        self._tickets = parts.tickets
        self._signals = parts.signals
        self._meters = parts.meters
        self._batchers: dict[tuple[ShardId, bool], Batcher[NewJob, Submission]] = {}

    async def insert(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        """One answer each: Unavailable for the jobs of a shard that does not answer; they are never tried elsewhere.

        If all jobs belong to that shard, Unavailable is raised.
        """
        answers: Sequence[Submission | Unavailable]
        if any([job.ring for job in jobs]):
            answers = await self._insert_unless_moved(jobs)
        elif len(jobs) == 1:
            answers = await self._add(jobs)
        else:
            answers = await self._insert(jobs)
        if _REFUSED.isdisjoint(map(type, answers)):
            return [*answers]
        return [answer.refusal if isinstance(answer, Held | Misplaced) else answer for answer in answers]

    async def insert_in_one(self, jobs: Sequence[NewJob]) -> list[Submission]:
        """Insert jobs of one shard; Unavailable if it does not answer, or takes one of them not now."""
        answers = await self._add(jobs) if jobs else []
        for answer in answers if not _REFUSED.isdisjoint(map(type, answers)) else ():
            if isinstance(answer, Held | Misplaced):
                raise answer.refusal
        return answers

    async def _insert_unless_moved(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        """Find the jobs whose keys were used on another shard before the ring changed; insert the others."""
        moved = await self._store.find_moved(jobs)
        answers = iter(await self._insert([job for job, known in zip(jobs, moved, strict=True) if known is None]))
        return [next(answers) if known is None else known for known in moved]

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        if not jobs:
            return []
        numbers = group_by(range(len(jobs)), lambda number: shard_of(jobs[number].id))
        if len(numbers) == 1:
            return [*await self._add(jobs)]
        found = await gather_answers([self._add([jobs[number] for number in mine]) for mine in numbers.values()])
        answers: dict[int, Submission | Unavailable] = {}
        for mine, answer in zip(numbers.values(), found, strict=True):
            answers.update(zip(mine, [answer] * len(mine) if isinstance(answer, Unavailable) else answer, strict=True))
        return [answers[number] for number in range(len(jobs))]

    def _add(self, jobs: Sequence[NewJob]) -> Awaitable[list[Submission]]:
        key = (shard_of(jobs[0].id), any([job.key is not None for job in jobs]))
        if (batcher := self._batchers.get(key)) is None:
            batcher = self._batchers[key] = Batcher(self._write)
        return batcher.submit(jobs)

    async def _write(self, jobs: Sequence[NewJob]) -> list[Submission]:
        marked = await self._tickets.mark(jobs)
        answers: list[Submission] = require(await self._store.submit(marked, self._tickets.ticket_for))
        made = [answer for answer in answers if isinstance(answer, Inserted)]
        added = [one.new for one in made]
        self._meters.submitted += len(made)
        self._signals.journal.tell()
        self._signals.arrivals.run(added)
        await self._tickets.publish_marked(marked, added)
        # Of all signals only this one is about new jobs; an event for each would tell no more.
        if queues := frozenset([one.new.queue for one in made if one.state is State.QUEUED]):
            self._signals.work.publish(queues)
        return answers
