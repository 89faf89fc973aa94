"""One shard behind its breaker: every call is refused at once while the shard is down, and takes a limited time."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self, TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, ShardId
from penstock.model.job import (
    BacklogKey,
    Cancellation,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    LogLine,
    NewJob,
    Page,
    Pruned,
    Renewal,
    Retention,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.lifecycle import Event
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.shards import ShardMember, ShardState
from penstock.model.submission import Known, Misplaced, Submission
from penstock.model.workers import EVER, Seen, Worker
from penstock.orchestrator.health import RETRY_AFTER_SECONDS, ShardBreaker
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Shard, Share

T = TypeVar("T")

PROBE_DEADLINE = timedelta(seconds=1)
UNOPENED = Capabilities()


class GuardedShard:
    """Keeps the Shard protocol over a shard that may not be open yet. What each method promises stands in the seam."""

    def __init__(self, member: ShardMember, breaker: ShardBreaker) -> None:
        self.member = member
        self.breaker = breaker
        self._inside: Shard | None = None

    @property
    def shard(self) -> ShardId:
        return self.member.number

    @property
    def opened(self) -> bool:
        return self._inside is not None

    @property
    def healthy(self) -> bool:
        return self._inside is not None and self.breaker.health.healthy and self.in_use

    @property
    def takes_new_jobs(self) -> bool:
        return self.member.takes_new_jobs and self.healthy

    @property
    def in_use(self) -> bool:
        """Whether its operator lets it be asked."""
        return self.member.state is not ShardState.DOWN

    def adopt(self, shard: Shard) -> None:
        """Send calls to this shard from now on."""
        self._inside = shard

    async def detach(self) -> None:
        """Close what is inside; calls are refused from now on."""
        shard, self._inside = self._inside, None
        if shard is not None:
            await shard.close()

    @property
    def capabilities(self) -> Capabilities:
        return UNOPENED if self._inside is None else self._inside.capabilities

    def shard_for(self, key: str | None = None) -> ShardId:
        return self.shard

    def epoch(self, key: str) -> None:
        return None

    def takers(self) -> None:
        return None

    def shards(self) -> Sequence[Self]:
        return (self,)

    def unavailable(self) -> tuple[ShardId, ...]:
        return () if self.healthy else (self.shard,)

    async def probe(self) -> None:
        await self.breaker.probe(lambda: self._open().probe(), PROBE_DEADLINE)

    async def close(self) -> None:
        """Nothing to let go of: the shard belongs to the orchestrator."""

    async def _ask(self, call: Callable[[Shard], Awaitable[T]]) -> T:
        shard = self._open()
        return await self.breaker.run(lambda: call(shard))

    def _open(self) -> Shard:
        if not self.in_use:
            raise StoreUnavailable(
                f"shard {self.shard} is out of use: its operator set it down; ask again once it is active",
                shard=self.shard,
                retry_after=RETRY_AFTER_SECONDS,
                sent=False,
            )
        if self._inside is None:
            raise self.breaker.refusal(sent=False)
        return self._inside

    async def now(self) -> datetime:
        return await self._ask(lambda shard: shard.now())

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        return await self._ask(lambda shard: shard.submit(jobs, ticket_for))

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        return await self._ask(lambda shard: shard.find_keyed(jobs))

    async def has_keys_before(self, at: datetime) -> bool:
        return await self._ask(lambda shard: shard.has_keys_before(at))

    async def admit(self, *, jobs: bool) -> None:
        await self._ask(lambda shard: shard.admit(jobs=jobs))

    async def raise_epoch(self) -> None:
        await self._ask(lambda shard: shard.raise_epoch())

    async def promote(self, limit: int) -> list[Event]:
        return await self._ask(lambda shard: shard.promote(limit))

    async def dispatch(
        self, room: Mapping[BacklogKey, int], ticket_for: timedelta, post: PostTickets | None = None
    ) -> list[Ticket]:
        return await self._ask(lambda shard: shard.dispatch(room, ticket_for, post))

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        return await self._ask(lambda shard: shard.overdue_tickets(after, limit))

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return await self._ask(lambda shard: shard.expire_tickets(jobs))

    async def due_summary(self) -> DueSummary:
        return await self._ask(lambda shard: shard.due_summary())

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        return await self._ask(lambda shard: shard.claim(tickets, worker, lease))

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        return await self._ask(lambda shard: shard.claim_next(asked, worker, lease))

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._ask(lambda shard: shard.renew(worker, leases, lease))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._ask(lambda shard: shard.settle(settlements))

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        return await self._ask(lambda shard: shard.release(leases, suspects=suspects, delay=delay))

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await self._ask(lambda shard: shard.retype(leases, type_name))

    async def reclaim(self, limit: int) -> list[Event]:
        return await self._ask(lambda shard: shard.reclaim(limit))

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await self._ask(lambda shard: shard.cancel(jobs, force=force))

    async def expire(self, limit: int) -> list[Event]:
        return await self._ask(lambda shard: shard.expire(limit))

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        return await self._ask(lambda shard: shard.get(jobs))

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await self._ask(lambda shard: shard.page(where, cursor, limit))

    async def counts(self) -> list[Count]:
        return await self._ask(lambda shard: shard.counts())

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._ask(lambda shard: shard.oldest_due())

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        return await self._ask(lambda shard: shard.due_before(before, limit))

    async def running_by_worker(self) -> dict[str, int]:
        return await self._ask(lambda shard: shard.running_by_worker())

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        return await self._ask(lambda shard: shard.prune(keep, limit))

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        return await self._ask(lambda shard: shard.append_log(lease, lines, cap, first))

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        return await self._ask(lambda shard: shard.read_log(job, after, limit))

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await self._ask(lambda shard: shard.put_notices(notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await self._ask(lambda shard: shard.change_notices(changes))

    async def notices(self) -> list[Notice]:
        return await self._ask(lambda shard: shard.notices())

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await self._ask(lambda shard: shard.acquire_role(role, holder, span))

    async def release_role(self, role: str, holder: str) -> None:
        await self._ask(lambda shard: shard.release_role(role, holder))

    async def put_worker(self, worker: Worker) -> None:
        await self._ask(lambda shard: shard.put_worker(worker))

    async def delete_worker(self, worker: str) -> None:
        await self._ask(lambda shard: shard.delete_worker(worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await self._ask(lambda shard: shard.workers(seen, limit))

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await self._ask(lambda shard: shard.prune_workers(before, limit))

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        return await self._ask(lambda shard: shard.put_schedule(schedule, expected_version, ring))

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await self._ask(lambda shard: shard.get_schedules(names))

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await self._ask(lambda shard: shard.schedules(after, limit))

    async def drop_schedule(self, name: str) -> bool:
        return await self._ask(lambda shard: shard.drop_schedule(name))

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await self._ask(lambda shard: shard.due_schedules(before, limit))

    async def next_tick(self) -> datetime | None:
        return await self._ask(lambda shard: shard.next_tick())

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        return await self._ask(lambda shard: shard.tick(moves, ticket_for))

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._ask(lambda shard: shard.ticks(name, before, limit))
