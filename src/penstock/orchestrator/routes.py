"""Jobs over shards: moves go where the job's id says, sweeps and lists over all that answer."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain, islice
from operator import attrgetter
from typing import TypeVar

from penstock.model.clock import EPOCH
from penstock.model.errors import MapChanged, Unavailable
from penstock.model.ids import JobId, ShardId, shard_of, shards_of
from penstock.model.job import (
    Cancellation,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    Loss,
    NewJob,
    Page,
    Renewal,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.lifecycle import State
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove
from penstock.model.submission import Known, Misplaced, Submission
from penstock.model.workers import Seen, Worker
from penstock.orchestrator import cursor as cursors
from penstock.orchestrator.directory import ABOUT_SHARDS, ShardDirectory
from penstock.orchestrator.fan_out import ask_all, gather_answers, split
from penstock.orchestrator.shard import GuardedShard
from penstock.store.seam import role_key, schedule_key

T = TypeVar("T")
A = TypeVar("A")


class JobRoutes:
    """The moves of jobs, each sent to the shard that its id names."""

    def __init__(self, roster: ShardDirectory) -> None:
        self._roster = roster

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        self._roster.check_open()
        answers = await self._route(jobs, _new_id, lambda shard, mine: shard.submit(mine, ticket_for), Misplaced)
        await self._catch_up(answers)
        return answers

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | Unavailable | None]:
        """Each former home is asked about its own keys, all at once; a job that one of them has counts."""
        answers: list[Known | Misplaced | Unavailable | None] = [None] * len(jobs)
        asked: defaultdict[GuardedShard, list[int]] = defaultdict(list)
        for index, job in enumerate(jobs):
            if job.ring is not None and job.ring != self._roster.map.epoch:
                answers[index] = Misplaced(job)
            elif job.ring is not None and job.key is not None:
                for shard in self._roster.former_shards(job.key):
                    asked[shard].append(index)
        ends = await gather_answers(
            [shard.find_keyed([jobs[index] for index in mine]) for shard, mine in asked.items()]
        )
        for mine, end in zip(asked.values(), ends, strict=True):
            found = [end] * len(mine) if isinstance(end, Unavailable) else end
            for index, one in zip(mine, found, strict=True):
                if one is not None and not isinstance(answers[index], Known):
                    answers[index] = one
        await self._catch_up(answers)
        return answers

    async def _catch_up(self, answers: Sequence[object]) -> None:
        """What is known is told in any case: the caller asks again for the rest."""
        if Misplaced in set(map(type, answers)):
            with suppress(Unavailable):
                await self._roster.catch_up()

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        async def claim_mine(shard: GuardedShard, mine: Sequence[Ticket]) -> list[Claim | None]:
            """One for each ticket: a doubled one finds its job gone."""
            found = {claim.job: claim for claim in await shard.claim(mine, worker, lease)}
            return [found.pop(ticket.job, None) for ticket in mine]

        claims = await self._route(tickets, _ticket_id, claim_mine, lambda _: None)
        return [claim for claim in claims if claim is not None]

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._route(
            leases,
            _job_id,
            lambda shard, mine: shard.renew(worker, mine, lease),
            lambda held: Renewal(held.job, held.fence, Loss.GONE),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._route(settlements, _job_id, lambda shard, mine: shard.settle(mine), _gone)

    async def release(self, leases: Sequence[Lease], *, suspects: bool, delay: timedelta | None) -> list[Settled]:
        def given_back(shard: GuardedShard, mine: Sequence[Lease]) -> Awaitable[list[Settled]]:
            return shard.release(mine, suspects=suspects, delay=delay)

        return await self._route(leases, _job_id, given_back, _gone)

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        async def retype_mine(shard: GuardedShard, mine: Sequence[Lease]) -> list[None]:
            await shard.retype(mine, type_name)
            return [None] * len(mine)

        await self._route(leases, _job_id, retype_mine, lambda _: None)

    async def cancel(self, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
        return await self._route(
            jobs, _itself, lambda shard, mine: shard.cancel(mine, force=force), lambda _: Cancellation(None)
        )

    async def get(self, jobs: Sequence[JobId]) -> list[Job | None]:
        return await self._route(jobs, _itself, lambda shard, mine: shard.get(mine), lambda _: None)

    async def shard_with(self, job: JobId) -> GuardedShard | None:
        """The shard that keeps this job; None when there is none of its number."""
        number = shard_of(job)
        if self._roster.find(number) is None:
            await self._roster.refresh_unknown([number])
        return self._roster.find(number)

    async def _route(
        self,
        items: Sequence[T],
        id_of: Callable[[T], JobId],
        call: Callable[[GuardedShard, Sequence[T]], Awaitable[list[A]]],
        unknown: Callable[[T], A],
    ) -> list[A]:
        def find(item: T) -> GuardedShard | None:
            return self._roster.find(shard_of(id_of(item)))

        numbers = shards_of(map(id_of, items))
        if unknown_numbers := {number for number in numbers if self._roster.find(number) is None}:
            await self._roster.refresh_unknown(unknown_numbers)
        if len(numbers) == 1 and (shard := find(items[0])) is not None:
            return await call(shard, items)
        return await split(items, find, call, unknown)

    # -- reads over all shards

    async def counts(self) -> list[Count]:
        total: Counter[tuple[str, str, State]] = Counter()
        for counts in (await ask_all(self._roster.healthy, lambda shard: shard.counts())).values():
            for count in counts:
                total[count.queue, count.type, count.state] += count.jobs
        return [Count(*about, jobs) for about, jobs in total.items()]

    async def oldest_due(self) -> dict[str, datetime]:
        oldest: dict[str, datetime] = {}
        for found in (await ask_all(self._roster.healthy, lambda shard: shard.oldest_due())).values():
            for queue, at in found.items():
                oldest[queue] = min(at, oldest.get(queue, at))
        return oldest

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        places = cursors.read(cursor)
        asked = [shard for shard in self._roster.healthy if places.get(shard.shard, "") is not None]
        pages: dict[ShardId, Page] = {}
        if asked or not self._roster.healthy:
            found = await ask_all(asked, lambda shard: shard.page(where, places.get(shard.shard), limit))
            pages = {shard.shard: page for shard, page in found.items()}
        left_out = {shard.shard for shard in asked} - set(pages)
        return cursors.merge(pages, places, limit, tuple(sorted({*self._roster.unavailable(), *left_out})))


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


async def put_notices(roster: ShardDirectory, call: Callable[[GuardedShard], Awaitable[None]]) -> None:
    """One shard that accepts is enough: the others learn it when they are read."""
    await ask_all(roster.healthy, call)


async def change_notices(roster: ShardDirectory, changes: Sequence[NoticeChange]) -> list[bool]:
    """Kept by all that answer, or not at all sure to count: a shard that refuses knows something newer."""
    answers = await ask_all(roster.healthy, lambda shard: shard.change_notices(changes))
    kept = [all(each) for each in zip(*answers.values(), strict=True)]
    roster.remember(change.notice for change, counts in zip(changes, kept, strict=True) if counts)
    return kept


async def notices(roster: ShardDirectory) -> list[Notice]:
    """All but those about shards, which are the orchestrator's own."""
    counting = await roster.notices()
    return [one for _, one in sorted(counting.items()) if one.kind not in ABOUT_SHARDS]


async def acquire_role(roster: ShardDirectory, role: str, holder: str, span: timedelta) -> int | None:
    """At the role's home; and first where it lived before the ring changed, in case a process has not heard of that.

    The fences of all are added up, so that one who takes over from such a process shows a higher one.
    """
    fences = 0
    for shard in roster.former_shards(role_key(role)):
        with suppress(Unavailable):
            if (fence := await shard.acquire_role(role, holder, span)) is None:
                return None
            fences += fence
    fence = await roster.shard_for_key(role_key(role)).acquire_role(role, holder, span)
    return None if fence is None else fences + fence


async def release_role(roster: ShardDirectory, role: str, holder: str) -> None:
    for shard in (*roster.former_shards(role_key(role)), roster.shard_for_key(role_key(role))):
        await shard.release_role(role, holder)


async def workers(roster: ShardDirectory, seen: Seen, limit: int | None) -> list[Worker]:
    """By id, each as the shard says that has seen it last."""
    found = _merged(await ask_all(roster.healthy, lambda shard: shard.workers(seen, limit)))
    last = sorted(found, key=_seen_at, reverse=True)[:limit]
    return sorted(last, key=lambda worker: worker.id)


async def prune_workers(roster: ShardDirectory, before: datetime, limit: int) -> list[Worker]:
    """On every shard: each worker is on all of them. One that others still see is back with its next heartbeat."""
    return _merged(await ask_all(roster.healthy, lambda shard: shard.prune_workers(before, limit)))


def _merged(said: Mapping[GuardedShard, Sequence[Worker]]) -> list[Worker]:
    newest: dict[str, Worker] = {}
    for worker in chain(*said.values()):
        known = newest.get(worker.id)
        if known is None or _seen_at(worker) > _seen_at(known):
            newest[worker.id] = worker
    return [newest[name] for name in sorted(newest)]


def _seen_at(worker: Worker) -> datetime:
    return worker.seen_at or EPOCH


PLACED_AGAIN = 3
"""How often a schedule is placed again because the ring has changed."""


def shard_of_schedule(roster: ShardDirectory, name: str) -> GuardedShard:
    return roster.shard_for_key(schedule_key(name))


async def put_schedule(roster: ShardDirectory, schedule: Schedule, expected_version: int | None) -> Schedule | None:
    """Where the ring puts it now, however often it changes meanwhile."""
    for _ in range(PLACED_AGAIN):
        try:
            return await _put(roster, schedule, expected_version)
        except MapChanged:
            await roster.catch_up()
    return await _put(roster, schedule, expected_version)


async def _put(roster: ShardDirectory, schedule: Schedule, expected_version: int | None) -> Schedule | None:
    shard, epoch = shard_of_schedule(roster, schedule.name), roster.map.epoch
    return await shard.put_schedule(schedule, expected_version, epoch)


async def get_schedules(roster: ShardDirectory, names: Sequence[str]) -> list[Schedule | None]:
    return await split(
        names,
        lambda name: shard_of_schedule(roster, name),
        lambda shard, mine: shard.get_schedules(mine),
        lambda _: None,
    )


async def tick(roster: ShardDirectory, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
    return await split(
        moves,
        lambda move: shard_of_schedule(roster, move.decision.name),
        lambda shard, mine: shard.tick(mine, ticket_for),
        lambda _: Ticked(applied=False),
    )


async def list_schedules(roster: ShardDirectory, after: str | None, limit: int) -> list[Schedule]:
    found = await ask_all(roster.healthy, lambda shard: shard.schedules(after, limit))
    return list(islice(heapq.merge(*found.values(), key=attrgetter("name")), limit))


async def due_schedules(roster: ShardDirectory, before: datetime, limit: int) -> list[Due]:
    found = await ask_all(roster.healthy, lambda shard: shard.due_schedules(before, limit))
    dues = [due for mine in found.values() for due in mine]
    return sorted(dues, key=lambda due: (_due_at(due, before), due.schedule.name))[:limit]


async def next_tick(roster: ShardDirectory) -> datetime | None:
    found = await ask_all(roster.healthy, lambda shard: shard.next_tick())
    return min((at for at in found.values() if at is not None), default=None)


def _due_at(due: Due, before: datetime) -> datetime:
    """The earliest of the reasons for which it is due."""
    schedule = due.schedule
    pending = schedule.pending_tick_at if not due.active else None
    reasons = [at for at in (schedule.next_tick_at, pending) if at is not None and (at < before or at == pending)]
    return min(reasons, default=due.completed_at or schedule.created_at)
