"""A batch under one key: repeating it adds nothing twice, whatever happened in between.

Its jobs have consecutive ids in the shard where the key belongs. The first of them that is accepted, the anchor,
carries the key and a fingerprint of the whole request, and is durable before any other is written. A repeated request
meets the anchor, learns the ids of the others from its id, and adds those that are missing.

Only within `ADDED_WITHIN` of the anchor: a job that is missing later may have run, ended and been pruned. The anchor is
kept for the longest retention, so that the key does not come free before all jobs of the batch are gone.
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

ADDED_WITHIN = timedelta(minutes=10)
"""How long after its anchor a repeated batch adds the jobs that an interruption left out."""

PLACED_AGAIN = 3
"""How often a batch is placed again because the shard map has changed."""

TURN_JOBS = 100
"""So many are prepared before others get a turn."""

SubmitOutcome: TypeAlias = Submission | PenstockError
Placed: TypeAlias = Mapping[int, SubmitRequest]
"""Requests by their place in the batch."""


class BatchKey(Struct, frozen=True):
    """The key of a batch, and a digest of everything that was asked for under it."""

    key: str
    fingerprint: bytes


class Batches:
    """Submits batches. `submit_alone` takes the jobs that have a key of their own."""

    def __init__(
        self,
        store: Store,
        retention: RetentionSettings,
        preparation: Preparation,
        insertion: Insertion,
        submit_alone: Callable[[Sequence[SubmitRequest]], Awaitable[list[SubmitOutcome]]],
    ) -> None:
        self._store = store
        # Half: what is added now must still not be pruned once it is written.
        shortest = seconds(min(retention.succeeded_seconds, retention.failed_seconds)) / 2
        self._added_within = min(ADDED_WITHIN, shortest)
        self._preparation = preparation
        self._insertion = insertion
        self._submit_alone = submit_alone

    async def submit(self, asked: Placed, key: BatchKey) -> dict[int, SubmitOutcome]:
        """What became of each. Unavailable if the shard of the key is: nobody knows then, so it is to be repeated."""
        alone = {
            index: _named(index, request, key)
            for index, request in asked.items()
            if request.idempotency_key is not None or request.interval is not None
        }
        if not alone:
            return await self._submit_series(asked, key)
        series = {index: request for index, request in asked.items() if index not in alone}
        with _something_sent():
            apart, together = await asyncio.gather(
                self._submit_alone([*alone.values()]), self._submit_series(series, key)
            )
        return {**dict(zip(alone, apart, strict=True)), **together}

    async def _submit_series(self, asked: Placed, key: BatchKey) -> dict[int, SubmitOutcome]:
        for _ in range(PLACED_AGAIN):
            with suppress(MapChanged):
                return await self._submit_placed(asked, key)
        return await self._submit_placed(asked, key)

    async def _submit_placed(self, asked: Placed, key: BatchKey) -> dict[int, SubmitOutcome]:
        """MapChanged if the key has another place by now: then nothing was written there."""
        if not asked:
            return {}
        series, ring = self._preparation.new_series(key.key)
        outcomes, anchor = await self._anchor(asked, series)
        if anchor is None:
            return outcomes
        first = place_in_series(anchor.id)
        rest = [index for index in asked if index > first]
        answer, prepared = await asyncio.gather(
            self._insert_anchor(_carrying(anchor, key, ring)), self._prepare_meanwhile(asked, rest, series)
        )
        with _something_sent():
            if isinstance(answer, Known):
                return await self._submit_again(asked, answer)
            outcomes[first] = answer
            outcomes.update(zip(rest, await self._insert(prepared), strict=True))
            return outcomes

    async def _anchor(self, asked: Placed, series: Series) -> tuple[dict[int, SubmitOutcome], NewJob | None]:
        """The first job that is accepted, and what became of those before it."""
        refused: dict[int, SubmitOutcome] = {}
        for index in asked:
            (prepared,) = await self._prepare(asked, (index,), series)
            if isinstance(prepared, NewJob):
                return refused, prepared
            refused[index] = prepared
        return refused, None

    async def _insert_anchor(self, anchor: NewJob) -> Submission:
        (answer,) = await self._insertion.insert([anchor])
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def _submit_again(self, asked: Placed, met: Known) -> dict[int, SubmitOutcome]:
        """The request was here before, or is here now: give back what is there of it, add what is missing."""
        if met.conflict:
            return dict.fromkeys(asked, _conflict(met))
        first = place_in_series(met.id)
        places, series = [index for index in asked if index != first], Series(met.id)
        if await self._store.now() - met.job.created_at < self._added_within:
            outcomes = await self._insert(await self._prepare(asked, places, series))
        else:
            outcomes = await self._find(series.ids(places), met)
        return {**dict(zip(places, outcomes, strict=True)), first: met}

    async def _find(self, jobs: Sequence[JobId], anchor: Known) -> list[SubmitOutcome]:
        found = await self._store.get(jobs)
        return [_missing(job, anchor) if one is None else Known(one) for job, one in zip(jobs, found, strict=True)]

    async def _prepare_meanwhile(self, asked: Placed, places: Sequence[int], series: Series) -> list[Prepared]:
        """With turns for others: for the anchor on its way to the store, first of all."""
        prepared: list[Prepared] = []
        for start in range(0, len(places), TURN_JOBS):
            await asyncio.sleep(0)  # noqa: TID251 - a yield, not a wait
            prepared += await self._prepare(asked, places[start : start + TURN_JOBS], series)
        return prepared

    async def _prepare(self, asked: Placed, places: Sequence[int], series: Series) -> list[Prepared]:
        return await self._preparation.prepare([asked[index] for index in places], series.ids(places))

    async def _insert(self, jobs: Sequence[Prepared]) -> list[SubmitOutcome]:
        answers = iter(await self._insertion.insert_in_one([job for job in jobs if isinstance(job, NewJob)]))
        return [next(answers) if isinstance(job, NewJob) else job for job in jobs]


@contextmanager
def _something_sent() -> Iterator[None]:
    """A part of the batch may be there already, whatever the rest met with."""
    try:
        yield
    except Unavailable as error:
        error.details["sent"] = True
        raise


def _named(index: int, request: SubmitRequest, key: BatchKey) -> SubmitRequest:
    """A job that repeats makes a schedule, which is found again by a key alone."""
    return request if request.idempotency_key else replace(request, idempotency_key=f"{key.key}/{index}")


def _carrying(anchor: NewJob, key: BatchKey, ring: int | None) -> NewJob:
    return replace(anchor, key=key.key, fingerprint=key.fingerprint, anchor=True, ring=ring)


def _missing(job: JobId, anchor: Known) -> NotFound:
    return NotFound(
        f"job {job} of this batch is not there: it ended and was removed after its retention, or it was never added. "
        f"The batch was submitted at {anchor.job.created_at.isoformat()}, and jobs are added to it within "
        f"{ADDED_WITHIN.total_seconds() / 60:.0f} minutes only; submit it under another key to have it run"
    )


def _conflict(met: Known) -> KeyConflict:
    return KeyConflict(f"the idempotency key was used for another request, of which job {met.id} was the first")
