"""The worker's moves: the engine's own side of `Reach`."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from penstock.engine.budget import RetryBudget
from penstock.engine.by_shard import PATIENCE, Call, each, keep, latecomers, split, trouble_of
from penstock.engine.files import job_prefix
from penstock.engine.outcome import settle_error
from penstock.model.errors import (
    BrokerUnavailable,
    CorruptObject,
    Invalid,
    NotFound,
    ObjectsUnavailable,
    StoreUnavailable,
    Unavailable,
)
from penstock.model.ids import JobId, ShardId, shard_of
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


LOOK_AGAIN = timedelta(milliseconds=500)

Shown = TypeVar("Shown", Lease, Outcome)


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
            tickets = await self._take(replace(wanted, except_queues=paused | wanted.except_queues), limit, left)
            claims = await self._claim(tickets, worker) if tickets else []
            if claims or clock.monotonic() >= deadline:
                return claims

    async def _take(self, wanted: Subscription, limit: int, wait: timedelta) -> list[Ticket]:
        """Tickets from the broker; while it is out of reach, straight from the store, looking again and again."""
        try:
            return await self._engine.tickets.take(wanted, limit, wait)
        except BrokerUnavailable:
            tickets = await self._dispatch(wanted, limit)
            if not tickets:
                await self._engine.clock.sleep(min(wait, LOOK_AGAIN))
            return tickets

    async def _dispatch(self, wanted: Subscription, limit: int) -> list[Ticket]:
        """Tickets made for this taker, from every shard that answers; only of queues where it can run every type."""
        types = (await self._engine.catalog.read()).types.values()
        others = {declared.queue for declared in types if declared.name not in wanted.types}
        queues = {declared.queue for declared in types if wanted.wants(declared.queue, declared.name)} - others
        tickets: list[Ticket] = []
        for shard in self._store.parts():
            if queues and len(tickets) < limit:
                with suppress(StoreUnavailable):
                    room = dict.fromkeys(queues, limit - len(tickets))
                    tickets += await shard.dispatch(room, self._engine.tickets.ticket_for)
        return tickets

    async def _claim(self, tickets: list[Ticket], worker: str) -> list[Claim]:
        """Claim to the end, even when the asker goes away meanwhile: then what was claimed is given back."""
        claiming = asyncio.ensure_future(self._claim_parts(tickets, worker))
        try:
            claims = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await self._give_back(await claiming)
            raise
        filled = [
            claim if claim.params_object is None else await self._fill(claim, claim.params_object) for claim in claims
        ]
        return [claim for claim in filled if claim is not None]

    async def _claim_parts(self, tickets: list[Ticket], worker: str) -> list[Claim]:
        """What the shards gave. Tickets of a shard that does not answer are posted again, a little later."""
        parts = list(split(tickets, lambda ticket: ticket.shard).values())
        calls: list[Call[list[Claim]]] = [
            asyncio.ensure_future(self._store.claim(part, worker, self._lease)) for part in parts
        ]
        late = await latecomers(calls, PATIENCE)
        claims: list[Claim] = []
        lost = 0
        for part, call in zip(parts, calls, strict=True):
            if call in late:
                keep(asyncio.ensure_future(self._undo(call, part)))
            elif trouble_of(call) is not None:
                self._engine.tickets.publish_later(part)
                lost += 1
            else:
                claims += call.result()
        if lost == len(calls):
            calls[0].result()
        return claims

    async def _undo(self, call: Call[list[Claim]], tickets: list[Ticket]) -> None:
        """A shard that is slow must not hold up the jobs of others: what it still gives is given back to it."""
        try:
            await self._give_back(await call)
        except Unavailable:
            self._engine.tickets.publish_later(tickets)

    async def _give_back(self, claims: Sequence[Claim]) -> None:
        await self.release([Lease(claim.job, claim.fence) for claim in claims])

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
        try:
            return await self._renew(worker.id, leases) if leases else []
        finally:
            await seen

    async def _renew(self, worker: str, leases: Sequence[Lease]) -> list[Renewal]:
        parts = list(split(leases, _shard).values())
        answers = await each(parts, lambda part: self._store.renew(worker, part, self._lease), PATIENCE)
        renewals = [_renewals(part, answer) for part, answer in zip(parts, answers, strict=True)]
        by_lease = {(one.job, one.fence): one for part in renewals for one in part}
        return [by_lease[lease.job, lease.fence] for lease in leases]

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        return await self._each_shard(outcomes, self._settle)

    async def _each_shard(
        self, shown: Sequence[Shown], move: Callable[[Sequence[Shown]], Awaitable[list[Refusal]]]
    ) -> list[Refusal]:
        """What was refused, and, as unsure, what a shard did not answer for."""
        parts = list(split(shown, _shard).values())
        refused: list[Refusal] = []
        for part, answer in zip(parts, await each(parts, move, PATIENCE), strict=True):
            if isinstance(answer, Unavailable):
                refused += [Refusal(one.job, one.fence, Loss.UNSURE) for one in part]
            else:
                refused += answer
        return refused

    async def _settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        jobs = await self._jobs([outcome.job for outcome in outcomes if outcome.error is not None])
        settlements: list[Settlement] = []
        unsure: list[Refusal] = []
        for outcome in outcomes:
            try:
                settlements.append(await self._settlement(outcome, jobs.get(outcome.job)))
            except ObjectsUnavailable:
                # Only what has files waits for the object store.
                unsure.append(Refusal(outcome.job, outcome.fence, Loss.UNSURE))
        return unsure + (self._report(await self._store.settle(settlements)) if settlements else [])

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
        async def given_back(part: Sequence[Lease]) -> list[Refusal]:
            return self._report(await self._store.release(part, suspects=suspects))

        return await self._each_shard(leases, given_back) if leases else []

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


def _shard(shown: Shown) -> ShardId:
    return shard_of(shown.job)


def _renewals(part: Sequence[Lease], answer: list[Renewal] | Unavailable) -> list[Renewal]:
    if isinstance(answer, Unavailable):
        return [Renewal(lease.job, lease.fence, Loss.UNSURE) for lease in part]
    return answer
