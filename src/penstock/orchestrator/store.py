"""Orchestrator: many shards as one store. What each method promises stands in the seam."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Self

from penstock.model.clock import Clock
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, ShardId
from penstock.model.job import (
    Cancellation,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    LogLine,
    NewJob,
    Page,
    Renewal,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.shards import ShardMap
from penstock.model.submission import Known, Misplaced, Submission
from penstock.model.workers import EVER, Seen, Worker
from penstock.orchestrator import routes
from penstock.orchestrator.admin import ShardAdmin
from penstock.orchestrator.directory import ShardDirectory
from penstock.orchestrator.fan_out import ask_all
from penstock.orchestrator.health import CALL_DEADLINE
from penstock.orchestrator.routes import JobRoutes, shard_of_schedule
from penstock.orchestrator.supervisor import OpenShard
from penstock.store.seam import Capabilities, Shard


class ShardedStore:
    """A store over shards. One that does not answer delays and hides only its own jobs."""

    capabilities = Capabilities(one_order=False)

    def __init__(self, roster: ShardDirectory, mapmaker: ShardAdmin) -> None:
        self.roster = roster
        self.mapmaker = mapmaker
        self._jobs = JobRoutes(roster)

    @classmethod
    async def open(
        cls,
        shards: ShardMap,
        open_shard: OpenShard,
        clock: Clock,
        rng: random.Random,
        *,
        deadline: timedelta = CALL_DEADLINE,
    ) -> Self:
        """Open the shards of the settings and those told about at run time.

        Those that cannot be opened are tried again while the others work. StoreUnavailable when none can.
        """
        roster = ShardDirectory(shards, open_shard, clock, rng, deadline)
        await roster.start()
        try:
            with suppress(Unavailable):
                async with roster.changing:
                    await roster.refresh()
        except BaseException:
            await roster.close()
            raise
        return cls(roster, ShardAdmin(roster, open_shard, clock))

    def shard_for(self, key: str | None = None) -> ShardId:
        return self.roster.shard_for(key)

    def epoch(self, key: str) -> int | None:
        return self.roster.epoch(key)

    def takers(self) -> Mapping[ShardId, float] | None:
        return self.roster.takers()

    def shards(self) -> Sequence[Shard]:
        return [shard for shard in self.roster.all if shard.in_use]

    def unavailable(self) -> tuple[ShardId, ...]:
        return self.roster.unavailable()

    async def now(self) -> datetime:
        return await self.roster.now()

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        return await self._jobs.submit(jobs, ticket_for)

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | Unavailable | None]:
        return await self._jobs.find_moved(jobs)

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        return await self._jobs.claim(tickets, worker, lease)

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._jobs.renew(worker, leases, lease)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._jobs.settle(settlements)

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        return await self._jobs.release(leases, suspects=suspects, delay=delay)

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await self._jobs.retype(leases, type_name)

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await self._jobs.cancel(jobs, force=force)

    async def get(self, jobs: Sequence[JobId]) -> list[Job | None]:
        return await self._jobs.get(jobs)

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await self._jobs.page(where, cursor, limit)

    async def counts(self) -> list[Count]:
        return await self._jobs.counts()

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._jobs.oldest_due()

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        shard = await self._jobs.shard_with(lease.job)
        return shard is not None and await shard.append_log(lease, lines, cap, first)

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        shard = await self._jobs.shard_with(job)
        return ([], after) if shard is None else await shard.read_log(job, after, limit)

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await routes.put_notices(self.roster, lambda shard: shard.put_notices(notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await routes.change_notices(self.roster, changes)

    async def notices(self) -> list[Notice]:
        """All but those about shards, which are the orchestrator's own. A shard that missed something is told."""
        return await routes.notices(self.roster)

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await routes.acquire_role(self.roster, role, holder, span)

    async def release_role(self, role: str, holder: str) -> None:
        await routes.release_role(self.roster, role, holder)

    async def put_worker(self, worker: Worker) -> None:
        await routes.put_notices(self.roster, lambda shard: shard.put_worker(worker))

    async def delete_worker(self, worker: str) -> None:
        await routes.put_notices(self.roster, lambda shard: shard.delete_worker(worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await routes.workers(self.roster, seen, limit)

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await routes.prune_workers(self.roster, before, limit)

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        return await routes.put_schedule(self.roster, schedule, expected_version)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await routes.get_schedules(self.roster, names)

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await routes.list_schedules(self.roster, after, limit)

    async def drop_schedule(self, name: str) -> bool:
        return await shard_of_schedule(self.roster, name).drop_schedule(name)

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await routes.due_schedules(self.roster, before, limit)

    async def next_tick(self) -> datetime | None:
        return await routes.next_tick(self.roster)

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        return await routes.tick(self.roster, moves, ticket_for)

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await shard_of_schedule(self.roster, name).ticks(name, before, limit)

    async def probe(self) -> None:
        """One shard that takes new jobs is enough."""
        await ask_all(
            [shard for shard in self.roster.healthy if shard.member.takes_new_jobs], lambda shard: shard.probe()
        )

    async def refresh(self) -> None:
        """Read what was told about shards, and do it; a task of its own does that about each second."""
        async with self.roster.changing:
            await self.roster.refresh()

    async def close(self) -> None:
        await self.roster.close()
