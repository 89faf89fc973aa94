"""A batch under one key: repeating it adds no job twice, whatever happened in between.

Its jobs have consecutive ids on the shard of the key. The first job that is accepted, the anchor, carries the key and a
fingerprint of the whole request, and is durable before any other is written. A repeated request finds the anchor,
derives the ids of the other jobs from its id, and adds those that are missing.

That is done only within `ADDED_WITHIN` of the anchor: a job that is missing later may have run, ended and been pruned.
The anchor is kept for the longest retention, so that the key stays taken until all jobs of the batch are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.config import RetentionSettings
from penstock.engine.submit import Insertion, Preparation, Prepared
from penstock.model.clock import seconds
from penstock.model.errors import KeyConflict, MapChanged, NotFound, PenstockError, Unavailable
from penstock.model.ids import JobId, Series, place_in_series
from penstock.model.job import NewJob
from penstock.model.submission import Known, Submission
from penstock.model.wire.jobs import SubmitRequest
from penstock.store import Store
from penstock.store.answers import require

ADDED_WITHIN = timedelta(minutes=10)
"""How long after its anchor a repeated batch adds the jobs that an interruption left out."""

PLACED_AGAIN = 3
"""How often a batch is placed again after the shard map has changed."""

TURN_JOBS = 100
"""How many jobs are prepared before other tasks may run."""

SubmitOutcome: TypeAlias = Submission | PenstockError
RequestsByIndex: TypeAlias = Mapping[int, SubmitRequest]
"""Requests by their index in the batch."""


class BatchKey(Struct, frozen=True):
    """The key of a batch, and a digest of the whole request."""

    key: str
    fingerprint: bytes


class Batches:
    """Submits batches. `submit_alone` submits the jobs that have a key of their own."""

    def __init__(
        self,
        store: Store,
        retention: RetentionSettings,
        preparation: Preparation,
        insertion: Insertion,
        submit_alone: Callable[[Sequence[SubmitRequest]], Awaitable[list[SubmitOutcome]]],
    ) -> None:
        self._store = store
        # Half of it: a job must not be pruned between this check and its insert.
        shortest = seconds(min(retention.succeeded_seconds, retention.failed_seconds)) / 2
        self._added_within = min(ADDED_WITHIN, shortest)
        self._preparation = preparation
        self._insertion = insertion
        self._submit_alone = submit_alone

    async def submit(self, requests: RequestsByIndex, key: BatchKey) -> dict[int, SubmitOutcome]:
        """The outcome of each job. Unavailable if the shard of the key is: then repeat the request."""
        alone = {
            index: _with_key(index, request, key)
            for index, request in requests.items()
            if request.idempotency_key is not None or request.interval is not None
        }
        if not alone:
            return await self._submit_series(requests, key)
        series = {index: request for index, request in requests.items() if index not in alone}
        with _marking_sent():
            alone_outcomes, series_outcomes = await asyncio.gather(
                self._submit_alone([*alone.values()]), self._submit_series(series, key)
            )
        return {**dict(zip(alone, alone_outcomes, strict=True)), **series_outcomes}

    async def _submit_series(self, requests: RequestsByIndex, key: BatchKey) -> dict[int, SubmitOutcome]:
        for _ in range(PLACED_AGAIN):
            with suppress(MapChanged):
                return await self._submit_placed(requests, key)
        return await self._submit_placed(requests, key)

    async def _submit_placed(self, requests: RequestsByIndex, key: BatchKey) -> dict[int, SubmitOutcome]:
        """MapChanged if the key has moved to another shard: then nothing was written."""
        if not requests:
            return {}
        series, ring = self._preparation.new_series(key.key)
        outcomes, anchor = await self._anchor(requests, series)
        if anchor is None:
            return outcomes
        first = place_in_series(anchor.id)
        rest = [index for index in requests if index > first]
        answer, prepared = await asyncio.gather(
            self._insert_anchor(_with_batch_key(anchor, key, ring)), self._prepare_meanwhile(requests, rest, series)
        )
        with _marking_sent():
            if isinstance(answer, Known):
                return await self._submit_again(requests, answer)
            outcomes[first] = answer
            outcomes.update(zip(rest, await self._insert(prepared), strict=True))
            return outcomes

    async def _anchor(
        self, requests: RequestsByIndex, series: Series
    ) -> tuple[dict[int, SubmitOutcome], NewJob | None]:
        """The first job that is accepted, and the refusals of those before it."""
        refused: dict[int, SubmitOutcome] = {}
        for index in requests:
            (prepared,) = await self._prepare(requests, (index,), series)
            if isinstance(prepared, NewJob):
                return refused, prepared
            refused[index] = prepared
        return refused, None

    async def _insert_anchor(self, anchor: NewJob) -> Submission:
        (answer,) = await self._insertion.insert([anchor])
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def _submit_again(self, requests: RequestsByIndex, known: Known) -> dict[int, SubmitOutcome]:
        """Answer a repeated or concurrent request: return the jobs that exist, add those that are missing."""
        if known.conflict:
            return dict.fromkeys(requests, _conflict(known))
        first = place_in_series(known.id)
        indexes, series = [index for index in requests if index != first], Series(known.id)
        if await self._store.now() - known.job.created_at < self._added_within:
            outcomes = await self._insert(await self._prepare(requests, indexes, series))
        else:
            outcomes = await self._find(series.ids(indexes), known)
        return {**dict(zip(indexes, outcomes, strict=True)), first: known}

    async def _find(self, jobs: Sequence[JobId], anchor: Known) -> list[SubmitOutcome]:
        found = require(await self._store.get(jobs))
        return [_missing(job, anchor) if one is None else Known(one) for job, one in zip(jobs, found, strict=True)]

    async def _prepare_meanwhile(
        self, requests: RequestsByIndex, indexes: Sequence[int], series: Series
    ) -> list[Prepared]:
        """Prepare in parts, so that other tasks may run: the insert of the anchor, first of all."""
        prepared: list[Prepared] = []
        for start in range(0, len(indexes), TURN_JOBS):
            await asyncio.sleep(0)  # noqa: TID251 - a yield, not a wait
            prepared += await self._prepare(requests, indexes[start : start + TURN_JOBS], series)
        return prepared

    async def _prepare(self, requests: RequestsByIndex, indexes: Sequence[int], series: Series) -> list[Prepared]:
        return await self._preparation.prepare([requests[index] for index in indexes], series.ids(indexes))

    async def _insert(self, jobs: Sequence[Prepared]) -> list[SubmitOutcome]:
        accepted = [job for job in jobs if isinstance(job, NewJob)]
        inserted = await self._insertion.insert_in_one(accepted)
        if len(accepted) == len(jobs):
            return [*inserted]
        answers = iter(inserted)
        return [next(answers) if isinstance(job, NewJob) else job for job in jobs]


@contextmanager
def _marking_sent() -> Iterator[None]:
    """Mark an Unavailable within: a part of the batch may have been stored already."""
    try:
        yield
    except Unavailable as error:
        error.details["sent"] = True
        raise


def _with_key(index: int, request: SubmitRequest, key: BatchKey) -> SubmitRequest:
    """The request with a key: a repeating job makes a schedule, which is found again only by its key."""
    return request if request.idempotency_key else replace(request, idempotency_key=f"{key.key}/{index}")


def _with_batch_key(anchor: NewJob, key: BatchKey, ring: int | None) -> NewJob:
    return replace(anchor, key=key.key, fingerprint=key.fingerprint, anchor=True, ring=ring)


def _missing(job: JobId, anchor: Known) -> NotFound:
    return NotFound(
        f"job {job} of this batch is not there: it ended and was removed after its retention, or it was never added. "
        f"The batch was submitted at {anchor.job.created_at.isoformat()}, and jobs are added to it within "
        f"{ADDED_WITHIN.total_seconds() / 60:.0f} minutes only; submit it under another key to have it run"
    )


def _conflict(known: Known) -> KeyConflict:
    return KeyConflict(f"the idempotency key was used for another request, of which job {known.id} was the first")
