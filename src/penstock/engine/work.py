"""The worker's moves: the engine's own side of `Reach`."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from penstock.engine.budget import RetryBudget
from penstock.engine.files import job_prefix
from penstock.engine.outcome import settle_error
from penstock.model.errors import CorruptObject, Invalid, NotFound, Unavailable
from penstock.model.ids import JobId
from penstock.model.job import (
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
    Ticket,
)
from penstock.model.lifecycle import State
from penstock.model.schedule_wire import OnConflict, ScheduleRequest
from penstock.model.timing import seconds
from penstock.model.wire import JoinResponse, LogEntry, Outcome, Refusal
from penstock.model.workers import JobType, Subscription, Worker

if TYPE_CHECKING:
    from penstock.engine import Engine


class Work:
    """Keeps Reach directly, over this process's store, broker and objects."""

    def __init__(self, engine: "Engine", chance: random.Random) -> None:
        self._engine = engine
        self._store = engine.store
        self._files = engine.files
        self._chance = chance
        self._lease = seconds(engine.settings.timing.lease_seconds)
        self._budget = RetryBudget(engine.settings.timing.retries_per_second)

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        await self._engine.catalog.declare(types)
        await self._store.see(worker)
        self._engine.catalog.forget()
        timing = self._engine.settings.timing
        return JoinResponse(timing.lease_seconds, timing.heartbeat_seconds)

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        for schedule in schedules:
            await self._engine.schedules.create(replace(schedule, on_conflict=OnConflict.REPLACE))

    async def claim(self, worker: str, wanted: Subscription, limit: int, wait: timedelta) -> list[Claim]:
        clock = self._engine.clock
        deadline = clock.monotonic() + wait.total_seconds()
        while True:
            paused = (await self._engine.catalog.read()).paused
            left = seconds(max(0.0, deadline - clock.monotonic()))
            tickets = await self._engine.tickets.take(replace(wanted, except_queues=paused), limit, left)
            claims = await self._claim(tickets, worker) if tickets else []
            if claims or clock.monotonic() >= deadline:
                return claims

    async def _claim(self, tickets: list[Ticket], worker: str) -> list[Claim]:
        """Claim to the end, even when the asker goes away meanwhile: then what was claimed is given back."""
        claiming = asyncio.ensure_future(self._store.claim(tickets, worker, self._lease))
        try:
            claims = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claims = await claiming
            await self.release([Lease(claim.job, claim.fence) for claim in claims])
            raise
        filled = [
            claim if claim.params_object is None else await self._fill(claim, claim.params_object) for claim in claims
        ]
        return [claim for claim in filled if claim is not None]

    async def _fill(self, claim: Claim, link: ObjectLink) -> Claim | None:
        """The claim with its large params read in; without them the attempt ends here."""
        lease = Lease(claim.job, claim.fence)
        try:
            params = await self._files.read_value(link)
        except Unavailable:
            await self.release([lease])
            return None
        except (NotFound, CorruptObject) as trouble:
            error = JobError(ErrorCode.CORRUPT_INPUT, f"params: {trouble.message}")
            await self.settle([Outcome(job=claim.job, fence=claim.fence, error=error)])
            return None
        return replace(claim, params=Raw(params), params_object=None)

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> list[Renewal]:
        seen = asyncio.ensure_future(self._store.see(worker))
        renewals = await self._store.renew(worker.id, leases, self._lease) if leases else []
        await seen
        return renewals

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        jobs = await self._jobs([outcome.job for outcome in outcomes if outcome.error is not None])
        settlements = [await self._settlement(outcome, jobs.get(outcome.job)) for outcome in outcomes]
        return self._report(await self._store.settle(settlements))

    async def _jobs(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        return {job.id: job for job in await self._store.get(ids) if job is not None} if ids else {}

    async def _settlement(self, outcome: Outcome, job: Job | None) -> Settlement:
        if outcome.cancelled:
            return Settlement(job=outcome.job, fence=outcome.fence, state=State.CANCELLED)
        if outcome.error is None:
            return await self._success(outcome)
        if job is None:
            # Gone: any settlement is refused, and the store says why.
            return Settlement(job=outcome.job, fence=outcome.fence, state=State.FAILED, error=outcome.error)
        return self._spread(job, settle_error(job, outcome.fence, outcome.error, self._chance))

    def _spread(self, job: Job, settlement: Settlement) -> Settlement:
        """A retry waits as its policy says, and no less than the budget of its queue asks for."""
        if settlement.retry_in is None:
            return settlement
        slot = self._budget.slot(job.queue, self._engine.clock.monotonic())
        return replace(settlement, retry_in=max(settlement.retry_in, slot))

    async def _success(self, outcome: Outcome) -> Settlement:
        try:
            await self._files.check_outputs(Lease(outcome.job, outcome.fence), outcome.outputs)
        except Invalid as fault:
            error = JobError(ErrorCode.INVALID_OUTPUT, fault.message)
            return Settlement(
                job=outcome.job, fence=outcome.fence, state=State.FAILED, error=error, reason=str(error.code)
            )
        result = bytes(outcome.result)
        link = None
        if len(result) > self._engine.settings.limits.inline_bytes:
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
        return self._report(await self._store.release(leases, suspects=suspects)) if leases else []

    def _report(self, answers: Sequence[Settled]) -> list[Refusal]:
        self._engine.moved([answer.event for answer in answers if answer.event is not None])
        return [
            Refusal(answer.job, answer.fence, answer.loss)
            for answer in answers
            if answer.loss is not None and answer.loss is not Loss.MINE_ALREADY
        ]

    async def log(self, entries: Sequence[LogEntry]) -> None:
        cap = self._engine.settings.limits.log_bytes
        appends = (self._store.append_log(Lease(entry.job, entry.fence), entry.lines, cap) for entry in entries)
        await asyncio.gather(*appends)

    async def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        _, body = await self._files.open_input(job, file.name)
        async for chunk in body:
            yield chunk

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        return await self._files.write_output(lease, number, body, content_type, digest)

    async def leave(self, worker: str) -> None:
        await self._store.forget(worker)
        self._engine.catalog.forget()

    async def close(self) -> None:
        """Nothing to let go of: the engine belongs to someone else."""
