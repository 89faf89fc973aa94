"""The worker's operations: join, claim, renew, settle, release, log. Implements `WorkerApi`."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from msgspec.structs import replace

from penstock.engine.claims import Claims
from penstock.engine.files import job_prefix
from penstock.engine.parts import EngineParts
from penstock.engine.schedules import Schedules
from penstock.engine.type_fit import Misfits, note_departures
from penstock.model.clock import seconds
from penstock.model.errors import Invalid, ObjectsUnavailable, Unavailable
from penstock.model.ids import JobId, shards_of
from penstock.model.job import (
    LOSSES,
    NEVER_RETRIED,
    Claim,
    ErrorCode,
    FileLink,
    Job,
    JobError,
    Lease,
    Loss,
    ObjectLink,
    Renewal,
    Settled,
    Settlement,
)
from penstock.model.lifecycle import POISON_LOSSES, State
from penstock.model.wire.jobs import JoinResponse, LogEntry, Outcome, Refusal, RenewResponse
from penstock.model.wire.schedules import OnConflict, ScheduleRequest
from penstock.model.workers import JobType, Worker, WorkRequest
from penstock.store.answers import PATIENCE, gather_answers, require

KEPT_QUEUES = 1000
LONGEST_SPREAD = timedelta(minutes=5)
"""The longest delay that the budget gives a retry, however many jobs have failed at once."""


class RetryBudget:
    """The retry budget of each queue: so many retries a second, spread by the generic cell rate algorithm.

    The retries of one second may run at once, so that a few wait no longer than their policy says. Those that do not
    fit into LONGEST_SPREAD are spread over it at random. Kept per process: with n servers a queue gets n times the
    rate. Queues whose budget is unused are forgotten.
    """

    def __init__(self, per_second: float, rng: random.Random) -> None:
        self._spacing = 1 / per_second
        self._burst = max(0.0, 1 - self._spacing)
        self._rng = rng
        self._expected: dict[str, float] = {}

    def slot(self, queue: str, now: float) -> timedelta:
        """How long from `now` (monotonic seconds) the next retry of this queue waits at least; takes that slot."""
        if len(self._expected) > KEPT_QUEUES:
            self._expected = {name: at for name, at in self._expected.items() if at > now}
        expected = max(now, self._expected.get(queue, now))
        wait = expected - self._burst - now
        if wait > LONGEST_SPREAD.total_seconds():
            return LONGEST_SPREAD * self._rng.random()
        self._expected[queue] = expected + self._spacing
        return seconds(max(0.0, wait))


POISON = "poison"


def settle_error(job: Job, fence: int, error: JobError, rng: random.Random) -> Settlement:
    """The settlement of an attempt that errored: a retry after a delay, or failed.

    The fields of the job that it reads do not change while the fence holds, and the settle checks the fence.
    """
    again = may_retry(job, error)
    error = replace(error, attempt=job.attempt, error_bases=())
    loss = error.code in LOSSES
    poison = loss and job.losses + 1 >= POISON_LOSSES
    if poison or not again:
        reason = POISON if poison else str(error.code)
        return Settlement(job=job.id, fence=fence, state=State.FAILED, error=error, reason=reason, loss=loss)
    wait = job.retry.wait_after(job.attempt, rng)
    return Settlement(job=job.id, fence=fence, state=State.SCHEDULED, error=error, retry_in=wait, loss=loss)


def may_retry(job: Job, error: JobError) -> bool:
    """Whether attempts are left and neither the error nor the policy forbids another one."""
    forbidden = error.error_class is not None and job.retry.forbids(error.error_class, *error.error_bases)
    final = forbidden or not error.retryable or error.code in NEVER_RETRIED
    return not final and job.attempt < job.retry.max_attempts


logger = logging.getLogger("penstock.engine")


class EngineWorkerApi:
    """The worker's operations, directly on this process's store, broker and object store."""

    def __init__(self, parts: EngineParts, schedules: Schedules) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._catalog = parts.catalog
        self._files = parts.files
        self._signals = parts.signals
        self._meters = parts.meters
        self._rng = parts.rng
        self._timing = parts.settings.timing
        self._limits = parts.settings.limits
        self._lease = seconds(self._timing.lease_seconds)
        self._schedules = schedules
        self._budget = RetryBudget(self._timing.retries_per_second, parts.rng)
        self._claims = Claims(parts, self.settle, self.release)
        self._misfits = Misfits(parts)

    async def join(
        self, worker: Worker, types: Sequence[JobType], within: Collection[str] | None = None
    ) -> JoinResponse:
        """`within`: the worker may declare types of these queues only."""
        await self._catalog.declare(types, seconds(worker.code_age_seconds), within, worker.app)
        await self._store.put_worker(worker)
        self._catalog.forget()
        return JoinResponse(self._timing.lease_seconds, self._timing.heartbeat_seconds)

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        for schedule in schedules:
            await self._schedules.create(replace(schedule, on_conflict=OnConflict.REPLACE))

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        return await self._claims.claim(worker, wanted, limit, wait)

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> RenewResponse:
        seen = asyncio.ensure_future(self._store.put_worker(worker))
        try:
            renewals = await self._renew(worker.id, leases) if leases else []
        finally:
            drain = await seen
        return RenewResponse(tuple(renewals), drain)

    async def _renew(self, worker: str, leases: Sequence[Lease]) -> list[Renewal]:
        answers = await self._store.renew(worker, leases, self._lease)
        return [
            Renewal(lease.job, lease.fence, Loss.UNSURE) if isinstance(answer, Unavailable) else answer
            for lease, answer in zip(leases, answers, strict=True)
        ]

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        """The refused outcomes; as unsure, those for which a shard or the object store gave no answer."""
        failed = await self._read_failed(outcomes)
        jobs = {id: job for id, job in failed.items() if not isinstance(job, Unavailable)}
        if len(jobs) == len(failed):
            return await self._settle(outcomes, jobs)
        unread = [one for one in outcomes if isinstance(failed.get(one.job), Unavailable)]
        return _unsure(unread) + await self._settle([one for one in outcomes if one not in unread], jobs)

    async def _read_failed(self, outcomes: Sequence[Outcome]) -> dict[JobId, Job | Unavailable]:
        """The jobs whose attempt errored: their retry policy decides what follows."""
        failed = [outcome.job for outcome in outcomes if outcome.error is not None]
        found = await self._store.get(failed, PATIENCE) if failed else []
        return {id: job for id, job in zip(failed, found, strict=True) if job is not None}

    async def _settle(self, outcomes: Sequence[Outcome], jobs: Mapping[JobId, Job]) -> list[Refusal]:
        ended, refused = await self._misfits.part(outcomes, jobs) if jobs else (outcomes, [])
        settlements: list[Settlement] = []
        for outcome in ended:
            try:
                decided = self._settlement(outcome, jobs.get(outcome.job))
                settlements.append(decided or await self._with_objects(outcome))
            except ObjectsUnavailable:
                # Only outcomes with files depend on the object store.
                refused.append(Refusal(outcome.job, outcome.fence, Loss.UNSURE))
        if not settlements:
            return refused
        answers = await self._store.settle(settlements)
        if jobs:
            self._note_runs(answers, jobs)
        return refused + self._report(settlements, answers)

    def _note_runs(self, answers: Sequence[Settled | Unavailable], jobs: Mapping[JobId, Job]) -> None:
        """Count attempts that are retried: the row no longer has their start, but the job that was read has."""
        for answer in _given(answers):
            job, event = jobs.get(answer.job), answer.event
            if job is not None and job.started_at and event is not None and event.ran_seconds is None:
                self._meters.note_run(job.type, (event.at - job.started_at).total_seconds())

    def _settlement(self, outcome: Outcome, job: Job | None) -> Settlement | None:
        """None for a success that has outputs or a large result in the object store."""
        if outcome.cancelled:
            return Settlement(job=outcome.job, fence=outcome.fence, state=State.CANCELLED)
        if outcome.error is None:
            if outcome.outputs or len(outcome.result) > self._limits.inline_bytes:
                return None
            result = bytes(outcome.result)
            return Settlement(job=outcome.job, fence=outcome.fence, state=State.SUCCEEDED, result=result)
        if job is None:
            # The job is gone: the store refuses any settlement, and says why.
            return Settlement(job=outcome.job, fence=outcome.fence, state=State.FAILED, error=outcome.error)
        return self._spread(job, settle_error(job, outcome.fence, outcome.error, self._rng))

    def _spread(self, job: Job, settlement: Settlement) -> Settlement:
        """The settlement with its retry delayed by its policy, and at least by the budget of its queue."""
        if settlement.retry_in is None:
            return settlement
        slot = self._budget.slot(job.queue, self._clock.monotonic())
        return replace(settlement, retry_in=max(settlement.retry_in, slot))

    async def _with_objects(self, outcome: Outcome) -> Settlement:
        try:
            await self._files.check_outputs(Lease(outcome.job, outcome.fence), outcome.outputs)
        except Invalid as error:
            failure = JobError(ErrorCode.INVALID_OUTPUT, error.message)
            return Settlement(
                job=outcome.job, fence=outcome.fence, state=State.FAILED, error=failure, reason=str(failure.code)
            )
        result = bytes(outcome.result)
        link = None
        if len(result) > self._limits.inline_bytes:
            link = await self._files.keep_value(f"{job_prefix(outcome.job)}/{outcome.fence}/result", result)
        return Settlement(
            job=outcome.job,
            fence=outcome.fence,
            state=State.SUCCEEDED,
            result=None if link else result,
            result_object=link,
            outputs=outcome.outputs,
        )

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        return self._report(leases, await self._store.release(leases, suspects=suspects)) if leases else []

    def _report(self, asked: Sequence[Lease | Settlement], answers: Sequence[Settled | Unavailable]) -> list[Refusal]:
        settled = _given(answers)
        self._signals.publish_events([answer.event for answer in settled if answer.event is not None])
        refused = [
            Refusal(answer.job, answer.fence, answer.loss)
            for answer in settled
            if answer.loss is not None and answer.loss is not Loss.MINE_ALREADY
        ]
        self._meters.note_refusals(refused)
        if len(settled) == len(asked):
            return refused
        return refused + _unsure(
            [one for one, answer in zip(asked, answers, strict=True) if isinstance(answer, Unavailable)]
        )

    async def log(self, entries: Sequence[LogEntry]) -> list[Refusal]:
        cap = self._limits.log_bytes
        appends = (
            self._store.append_log(Lease(entry.job, entry.fence), entry.lines, cap, entry.first) for entry in entries
        )
        several = len(shards_of(entry.job for entry in entries)) > 1
        answers = await gather_answers(appends, PATIENCE if several else None)
        kept = answers if several else require(answers)
        return [
            Refusal(entry.job, entry.fence, Loss.UNSURE if isinstance(was_kept, Unavailable) else Loss.LOST)
            for entry, was_kept in zip(entries, kept, strict=True)
            if was_kept is not True
        ]

    async def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        _, body = await self._files.open_input(job, file.name)
        async for chunk in body:
            yield chunk

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        return await self._files.write_output(lease, number, body, content_type, digest)

    async def leave(self, worker: str) -> None:
        rows = [one for one in (await self._catalog.read()).workers if one.id == worker]
        await self._store.delete_worker(worker)
        self._catalog.forget()
        try:
            await note_departures(self._catalog, rows)
        except Unavailable as error:
            # The worker has left, whether or not this can be recorded.
            logger.debug("when %s left could not be recorded: %s", worker, error)

    async def close(self) -> None:
        """Does nothing: the engine is closed by its owner."""


def _given(answers: Sequence[Settled | Unavailable]) -> list[Settled]:
    """The answers of the shards that gave one."""
    return [answer for answer in answers if not isinstance(answer, Unavailable)]


def _unsure(asked: Iterable[Lease | Settlement | Outcome]) -> list[Refusal]:
    """Neither done nor refused, as far as is known: the worker asks again."""
    return [Refusal(one.job, one.fence, Loss.UNSURE) for one in asked]
