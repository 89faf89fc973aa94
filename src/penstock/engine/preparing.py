"""From requests to jobs that a store can insert: defaults resolved, params checked, large values and inputs stored."""

import random
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.files import job_prefix
from penstock.engine.repeating import RepeatedSubmits
from penstock.engine.submit import fingerprint, new_job
from penstock.model.errors import PenstockError
from penstock.model.ids import JobId, Series, new_job_id
from penstock.model.job import NewJob
from penstock.model.submission import Submission
from penstock.model.timing import to_millis
from penstock.model.wire import SubmitRequest
from penstock.model.workers import JobType

if TYPE_CHECKING:
    from penstock.engine import Engine

Prepared: TypeAlias = NewJob | Submission | PenstockError
"""A job to insert; one that was made already, by the first tick of its schedule; or why there is none."""

ANY_ID: Iterable[None] = repeat(None)


class Preparation:
    """Makes jobs of requests, and the ids of new jobs."""

    def __init__(self, engine: "Engine", rng: random.Random) -> None:
        self._engine = engine
        self._rng = rng
        self._repeating = RepeatedSubmits(engine)

    def new_id(self, key: str | None = None, now: datetime | None = None) -> JobId:
        at_millis = to_millis(now or self._engine.clock.now())
        return new_job_id(at_millis, self._engine.store.shard_for(key), self._rng)

    def new_series(self, key: str) -> tuple[Series, int | None]:
        """Ids for the jobs of a batch where its key belongs, and the ring that says so."""
        series = Series.new(to_millis(self._engine.clock.now()), self._engine.store.shard_for(key), self._rng)
        return series, self._engine.store.epoch(key)

    async def prepare(self, requests: Sequence[SubmitRequest], ids: Iterable[JobId | None] = ANY_ID) -> list[Prepared]:
        """One answer each, in order. A job without an id gets one of its own, where its key belongs if it has one."""
        terms = await self._terms()
        return [
            await self._with_more(request, job, terms) if self._has_more(request) else terms.resolve(request, job)
            for request, job in zip(requests, ids, strict=False)
        ]

    async def _terms(self) -> "_TypeResolver":
        self._engine.catalog.require_types()
        return _TypeResolver(self, self._engine, await self._engine.catalog.read())

    def _has_more(self, request: SubmitRequest) -> bool:
        return (
            request.idempotency_key is not None
            or request.interval is not None
            or bool(request.inputs)
            or len(request.params) > self._engine.settings.limits.inline_bytes
        )

    async def _with_more(self, request: SubmitRequest, job: JobId | None, terms: "_TypeResolver") -> Prepared:
        if request.interval is not None:
            return await self._repeating.submit(request, job or self.new_id())
        new = terms.resolve(request, job)
        try:
            return await self._complete(new, request) if isinstance(new, NewJob) else new
        except PenstockError as error:
            return error

    async def _complete(self, new: NewJob, request: SubmitRequest) -> NewJob:
        """With its large values stored, and with a fingerprint if it has a key."""
        files = self._engine.files
        if request.inputs:
            new = replace(new, inputs=await files.adopt(new.id, request.inputs))
        if len(request.params) > self._engine.settings.limits.inline_bytes:
            link = await files.keep_value(f"{job_prefix(new.id)}/params", bytes(request.params))
            new = replace(new, params=None, params_object=link)
        return replace(new, fingerprint=fingerprint(request, new.inputs)) if new.key is not None else new


class _TypeResolver:
    """What the jobs of one call have in common: looked up once, however many they are."""

    def __init__(self, preparing: Preparation, engine: "Engine", reading: CatalogReading) -> None:
        self._new_id = preparing.new_id
        self._epoch = engine.store.epoch
        self._catalog = engine.catalog
        self._allow_unknown = engine.settings.server.allow_unknown_types
        self._reading = reading
        self._now = engine.clock.now()
        self._types: dict[str, JobType] = {}

    def resolve(self, request: SubmitRequest, job: JobId | None) -> NewJob | PenstockError:
        """The job without what has to be stored elsewhere first; or why it is refused."""
        try:
            declared = self._types.get(request.type) or self._declared(request.type)
            # The id and the ring go together: nothing may be awaited between the two.
            key = request.idempotency_key
            job, ring = job or self._new_id(key, self._now), None if key is None else self._epoch(key)
            new = new_job(job, request, declared, self._now, ring)
            if new.params is not None and declared.params_schema is not None:
                self._catalog.check(declared, new.params)
            return new
        except PenstockError as error:
            return error

    def _declared(self, name: str) -> JobType:
        declared = self._types[name] = self._reading.type(name, allow_unknown=self._allow_unknown)
        return declared
