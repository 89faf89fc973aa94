"""Many shards as one store: moves go to the shard that the job's id names, lists and counts over all that answer."""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Self, TypeVar

from penstock.model.clock import Clock
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, ShardId, shard_of, shards_of
from penstock.model.job import (
    Cancellation,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    LogLine,
    Loss,
    NewJob,
    Page,
    Renewal,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.lifecycle import State
from penstock.model.shards import ShardMap
from penstock.model.submission import Known, Misplaced, Submission
from penstock.orchestrator import cursor as cursors
from penstock.orchestrator.admin import ShardAdmin
from penstock.orchestrator.directory import ShardDirectory
from penstock.orchestrator.fan_out import ask_all, ask_each
from penstock.orchestrator.registry import ShardedRegistry
from penstock.orchestrator.shard import CALL_DEADLINE, GuardedShard
from penstock.orchestrator.supervisor import OpenShard
from penstock.store.answers import PATIENCE, gather_answers, require
from penstock.store.seam import Capabilities, Shard, common_capabilities

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ShardedStore(ShardedRegistry):
    """A store over shards. One that does not answer delays and hides only its own jobs."""

    def __init__(self, directory: ShardDirectory, admin: ShardAdmin, patience: timedelta | None) -> None:
        super().__init__(directory)
        self.admin = admin
        self._patience = patience

    @classmethod
    async def open(
        cls,
        shards: ShardMap,
        open_shard: OpenShard,
        clock: Clock,
        rng: random.Random,
        *,
        deadline: timedelta = CALL_DEADLINE,
        patience: timedelta | None = PATIENCE,
    ) -> Self:
        """Open the shards of the settings and those added at run time.

        A worker's move waits `patience` for other shards after the first answer; None: as long as they take.

        Those that cannot be opened are tried again while the others work. StoreUnavailable when none can.
        """
        directory = ShardDirectory(shards, open_shard, clock, rng, deadline)
        await directory.start()
        try:
            with suppress(Unavailable):
                async with directory.changing:
                    await directory.refresh()
        except BaseException:
            await directory.close()
            raise
        return cls(directory, ShardAdmin(directory, open_shard, clock), patience)

    # -- the shards behind it

    @property
    def capabilities(self) -> Capabilities:
        return common_capabilities(shard.capabilities for shard in self.directory.all)

    def shard_for(self, key: str | None = None) -> ShardId:
        return self.directory.shard_for(key)

    def epoch(self, key: str) -> int | None:
        return self.directory.epoch(key)

    def takers(self) -> Mapping[ShardId, float] | None:
        return self.directory.takers()

    def shards(self) -> Sequence[Shard]:
        return [shard for shard in self.directory.all if shard.in_use]

    def unavailable(self) -> tuple[ShardId, ...]:
        return self.directory.unavailable()

    async def now(self) -> datetime:
        return await self.directory.now()

    async def probe(self) -> None:
        """One shard that takes new jobs is enough."""
        takers = [shard for shard in self.directory.healthy if shard.member.takes_new_jobs]
        await ask_all(takers, lambda shard: shard.probe())

    async def look_after(self) -> None:
        """Do once what is otherwise done about each second: probe the shards or open them, and follow the map."""
        await self.directory.look_after()
        with suppress(Unavailable):
            await self.refresh()

    async def refresh(self) -> None:
        """Read the notices about shards and apply them; the directory also does this about each second."""
        async with self.directory.changing:
            await self.directory.refresh()

    async def close(self) -> None:
        await self.directory.close()

    # -- moves, each sent to the shard that the job's id names

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> Sequence[Submission | Unavailable]:
        self.directory.check_open()
        answers = await self._route(jobs, _new_id, lambda shard, mine: shard.submit(mine, ticket_for), Misplaced)
        await self._catch_up(answers)
        return answers

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | Unavailable | None]:
        """Each former shard is asked about its own keys, all at once; a job that one of them has counts."""
        answers: list[Known | Misplaced | Unavailable | None] = [None] * len(jobs)
        asked: defaultdict[GuardedShard, list[int]] = defaultdict(list)
        for index, job in enumerate(jobs):
            if job.ring is not None and job.ring != self.directory.map.epoch:
                answers[index] = Misplaced(job)
            elif job.ring is not None and job.key is not None:
                for shard in self.directory.former_shards(job.key):
                    asked[shard].append(index)
        found = await gather_answers(
            [shard.find_keyed([jobs[index] for index in mine]) for shard, mine in asked.items()]
        )
        for mine, told in zip(asked.values(), found, strict=True):
            for index, one in zip(mine, [told] * len(mine) if isinstance(told, Unavailable) else told, strict=True):
                if one is not None and not isinstance(answers[index], Known):
                    answers[index] = one
        await self._catch_up(answers)
        return answers

    async def _catch_up(self, answers: Sequence[object]) -> None:
        """Refresh the map after a misplaced job. Best effort: the caller gets the answers that are known anyway."""
        if Misplaced in set(map(type, answers)):
            with suppress(Unavailable):
                await self.directory.catch_up()

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        async def claim_mine(shard: GuardedShard, mine: Sequence[Ticket]) -> list[Claim | None]:
            """One for each ticket: a doubled one finds its job gone."""
            found = {claim.job: claim for claim in await shard.claim(mine, worker, lease)}
            return [found.pop(ticket.job, None) for ticket in mine]

        claims = require(await self._route(tickets, _ticket_id, claim_mine, lambda _: None))
        return [claim for claim in claims if claim is not None]

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> Sequence[Renewal | Unavailable]:
        return await self._route(
            leases,
            _job_id,
            lambda shard, mine: shard.renew(worker, mine, lease),
            lambda held: Renewal(held.job, held.fence, Loss.GONE),
            self._patience,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled | Unavailable]:
        return await self._route(settlements, _job_id, lambda shard, mine: shard.settle(mine), _gone, self._patience)

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> Sequence[Settled | Unavailable]:
        return await self._route(
            leases,
            _job_id,
            lambda shard, mine: shard.release(mine, suspects=suspects, delay=delay),
            _gone,
            self._patience,
        )

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        async def retype_mine(shard: GuardedShard, mine: Sequence[Lease]) -> list[None]:
            await shard.retype(mine, type_name)
            return [None] * len(mine)

        require(await self._route(leases, _job_id, retype_mine, lambda _: None, self._patience))

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> Sequence[Cancellation | Unavailable]:
        return await self._route(
            jobs, _itself, lambda shard, mine: shard.cancel(mine, force=force), lambda _: Cancellation(None)
        )

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> Sequence[Job | Unavailable | None]:
        return await self._route(jobs, _itself, lambda shard, mine: shard.get(mine), lambda _: None, patience)

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        shard = await self._shard_with(lease.job)
        return shard is not None and await shard.append_log(lease, lines, cap, first)

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        shard = await self._shard_with(job)
        return ([], after) if shard is None else await shard.read_log(job, after, limit)

    async def _shard_with(self, job: JobId) -> GuardedShard | None:
        """The shard that keeps this job; None when there is none of its number."""
        number = shard_of(job)
        if self.directory.find(number) is None:
            await self.directory.refresh_unknown([number])
        return self.directory.find(number)

    async def _route(
        self,
        items: Sequence[Item],
        id_of: Callable[[Item], JobId],
        call: Callable[[GuardedShard, Sequence[Item]], Awaitable[Sequence[Answer]]],
        unknown: Callable[[Item], Answer],
        patience: timedelta | None = None,
    ) -> Sequence[Answer | Unavailable]:
        """`ask_each`, by the shard numbers in the ids; mostly there is only one."""
        numbers = shards_of(map(id_of, items))
        if len(numbers) == 1 and (shard := self.directory.find(*numbers)) is not None:
            return await call(shard, items)
        if unknown_numbers := {number for number in numbers if self.directory.find(number) is None}:
            await self.directory.refresh_unknown(unknown_numbers)
        return await ask_each(items, lambda item: self.directory.find(shard_of(id_of(item))), call, unknown, patience)

    # -- reads over all shards

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        positions = cursors.decode(cursor)
        asked = [shard for shard in self.directory.healthy if positions.get(shard.shard, "") is not None]
        pages: dict[ShardId, Page] = {}
        if asked or not self.directory.healthy:
            found = await ask_all(asked, lambda shard: shard.page(where, positions.get(shard.shard), limit))
            pages = {shard.shard: page for shard, page in found.items()}
        left_out = {shard.shard for shard in asked} - set(pages)
        return cursors.merge(pages, positions, limit, tuple(sorted({*self.directory.unavailable(), *left_out})))

    async def counts(self) -> list[Count]:
        total: Counter[tuple[str, str, State]] = Counter()
        for counts in (await ask_all(self.directory.healthy, lambda shard: shard.counts())).values():
            for count in counts:
                total[count.queue, count.type, count.state] += count.jobs
        return [Count(*about, jobs) for about, jobs in total.items()]

    async def oldest_due(self) -> dict[str, datetime]:
        oldest: dict[str, datetime] = {}
        for found in (await ask_all(self.directory.healthy, lambda shard: shard.oldest_due())).values():
            for queue, at in found.items():
                oldest[queue] = min(at, oldest.get(queue, at))
        return oldest


def _itself(job: JobId) -> JobId:
    return job


def _new_id(job: NewJob) -> JobId:
    return job.id


def _ticket_id(ticket: Ticket) -> JobId:
    return ticket.job


def _job_id(shown: Lease | Settlement) -> JobId:
    return shown.job


def _gone(shown: Lease | Settlement) -> Settled:
    return Settled(shown.job, shown.fence, loss=Loss.GONE)
