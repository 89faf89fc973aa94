"""What all promises are tested on: an empty store, a clock set by hand, and short ways to a job in any state."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest

from penstock.model.clock import SystemClock, to_millis
from penstock.model.ids import JobId, ShardId, new_job_id, shard_of
from penstock.model.job import (
    BacklogKey,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    NewJob,
    Pruned,
    Retention,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.lifecycle import State
from penstock.store.seam import PostTickets, Shard, Share, Store
from penstock.testing.clock import SimulatedClock
from penstock.testing.sweeps import AllShardSweeps

LEASE = timedelta(seconds=15)
TICKET = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
KEEP = Retention(succeeded=timedelta(hours=1), failed=timedelta(hours=2))
"""What ended jobs are kept for in these tests. A store whose rows expire is opened with it."""

AGREE_WITHIN = timedelta(seconds=10)
ASK_EVERY = timedelta(milliseconds=20)


class StoreStage:
    """A store and its clock, with the moves a test needs but is not about."""

    def __init__(self, store: Store, clock: SimulatedClock) -> None:
        # Typed as a shard, whose answers are never Unavailable: no shard is down in the contract.
        self.store = cast(Shard, store)
        self.sweeps = AllShardSweeps(store)
        self.clock = clock
        self.rng = random.Random(7)

    def new(self, **fields: Any) -> NewJob:
        """A job of type `mail`, due now, unless told otherwise."""
        fields.setdefault("type", "mail")
        fields.setdefault("queue", fields["type"])
        fields.setdefault("id", self.new_id(fields.get("key")))
        return NewJob(**fields)

    def new_id(self, key: str | None = None) -> JobId:
        """An id at the place of this key; without one, at any."""
        return new_job_id(to_millis(self.clock.now()), self.store.shard_for(key), self.rng)

    def lines(self, jobs: Iterable[JobId]) -> dict[ShardId | None, list[JobId]]:
        """The jobs as far as their order is promised: all in one line, or those of each shard."""
        lines: dict[ShardId | None, list[JobId]] = {}
        for job in jobs:
            lines.setdefault(None if self.store.capabilities.one_order else shard_of(job), []).append(job)
        return lines

    def unknown(self) -> JobId:
        """The id of a job that is not there."""
        return self.new().id

    async def submit(self, **fields: Any) -> Job:
        (submission,) = await self.store.submit([self.new(**fields)], TICKET)
        return submission.job

    async def claim(self, *jobs: JobId, worker: str = "w1") -> list[Claim]:
        tickets = [Ticket(shard_of(job), job, "mail", "mail") for job in jobs]
        return await self.store.claim(tickets, worker, LEASE)

    async def dispatch(self, room: Mapping[str, int], post: PostTickets | None = None) -> list[Ticket]:
        """Tickets for jobs of type `mail` in these queues."""
        return await self.sweeps.dispatch(
            {BacklogKey(queue, "mail"): jobs for queue, jobs in room.items()}, TICKET, post
        )

    async def claim_next(
        self, room: Mapping[str, int], *types: str, worker: str = "w1", lease: timedelta = LEASE
    ) -> list[Claim]:
        """Of these types; without any, of both that tests use."""
        asked = [Share(queue, types or ("mail", "scan"), jobs) for queue, jobs in room.items()]
        return await self.sweeps.claim_next(asked, worker, lease)

    async def expire_overdue_tickets(self) -> int:
        """As a reaper does that cannot find the tickets."""
        return await self.sweeps.expire_tickets(await self.sweeps.overdue_tickets(None, 1000))

    async def run_job(self, **fields: Any) -> Lease:
        """A new job, claimed."""
        (claim,) = await self.claim((await self.submit(**fields)).id)
        return Lease(claim.job, claim.fence)

    async def claim_again(self, job: JobId) -> Lease:
        (claim,) = await self.claim(job)
        return Lease(claim.job, claim.fence)

    async def lose(self, job: JobId) -> None:
        """Claim a job, begin it, and lose its worker."""
        await self.lose_claimed(await self.claim_again(job))

    async def lose_claimed(self, lease: Lease) -> None:
        """Begin a claimed job, and lose its worker."""
        await self.store.renew("w1", [lease], LEASE)
        self.clock.advance(LEASE)
        await self.sweeps.reclaim(9)

    async def settle(self, lease: Lease, state: State = State.SUCCEEDED, **fields: Any) -> Settled:
        (settled,) = await self.store.settle([Settlement(job=lease.job, fence=lease.fence, state=state, **fields)])
        return settled

    async def end_job(self, state: State = State.SUCCEEDED, **fields: Any) -> JobId:
        """A new job, claimed and settled."""
        lease = await self.run_job(**fields)
        await self.settle(lease, state)
        return lease.job

    async def job(self, job: JobId) -> Job:
        (found,) = await self.store.get([job])
        assert found is not None, f"job {job} is gone"
        return found

    async def all_jobs(self, where: JobFilter | None = None, *, page: int = 1000) -> list[Job]:
        """Every job, newest first, page after page."""
        first = await self.store.page(where or JobFilter(), None, page)
        jobs, cursor = list(first.jobs), first.cursor
        while cursor is not None:
            more = await self.store.page(where or JobFilter(), cursor, page)
            jobs += more.jobs
            cursor = more.cursor
        return jobs

    async def prune(self, limit: int = 1000) -> int:
        """Delete jobs past their retention, of which the tests ask no more than that; how many.

        Where rows expire there is nothing to do. Their counts are gone within a day: it is over then.
        """
        if not self.store.capabilities.rows_expire:
            return (await self.sweeps.prune(KEEP, limit)).jobs
        assert await self.sweeps.prune(KEEP, limit) == Pruned(0, ())
        return 0

    async def shows_backlog(self, backlog: Collection[BacklogKey]) -> bool:
        """Whether these backlogs, and no others, have jobs that wait for a ticket."""
        prompt = self.store.capabilities.prompt_lines

        async def agrees() -> bool:
            return (await self.sweeps.due_summary()).backlog == set(backlog)

        return await (agrees() if prompt else _becomes_true(agrees))

    async def read_counts(self) -> set[Count]:
        """What `counts` says, without zeros; where counts are not exact, once they agree with the jobs."""
        if not self.store.capabilities.exact_counts:
            await _becomes_true(self._counts_agree)
        return {count for count in await self.store.counts() if count.jobs}

    async def _counts_agree(self) -> bool:
        return {count for count in await self.store.counts() if count.jobs} == await self.count_jobs()

    async def count_jobs(self) -> set[Count]:
        """What `counts` should say: the jobs themselves, counted."""
        found = Counter((job.queue, job.type, job.state) for job in await self.all_jobs())
        return {Count(*key, jobs) for key, jobs in found.items()}


async def _becomes_true(ask: Callable[[], Awaitable[bool]]) -> bool:
    """Ask until it is true, at most AGREE_WITHIN: a store that declares it may show moves late."""
    clock = SystemClock()
    deadline = clock.monotonic() + AGREE_WITHIN.total_seconds()
    while not (found := await ask()) and clock.monotonic() < deadline:
        await clock.sleep(ASK_EVERY)
    return found


class OnStage(ABC):
    """The fixtures of the contract: a backend's own `clock` and `store`, and the `stage` made of them."""

    @pytest.fixture
    def clock(self) -> SimulatedClock:
        return SimulatedClock()

    @pytest.fixture
    @abstractmethod
    def store(self, clock: SimulatedClock) -> Any:
        """An empty store that goes by the clock, closed afterwards."""

    @pytest.fixture
    def stage(self, store: Store, clock: SimulatedClock) -> StoreStage:
        return StoreStage(store, clock)
