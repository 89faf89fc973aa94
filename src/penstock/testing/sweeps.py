"""The sweeps of a store's shards, one shard after another, as if they were one shard."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Claim, Pruned, Retention, Ticket
from penstock.model.lifecycle import Event
from penstock.store.seam import DueSummary, PostTickets, Shard, Share, Store


class AllShardSweeps:
    """Asks every shard in turn; what is left of a limit is for the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def promote(self, limit: int) -> list[Event]:
        return await self._move(limit, lambda shard, left: shard.promote(left))

    async def reclaim(self, limit: int) -> list[Event]:
        return await self._move(limit, lambda shard, left: shard.reclaim(left))

    async def expire(self, limit: int) -> list[Event]:
        return await self._move(limit, lambda shard, left: shard.expire(left))

    async def _move(self, limit: int, call: Callable[[Shard, int], Awaitable[list[Event]]]) -> list[Event]:
        events: list[Event] = []
        for shard in self._store.shards():
            events += await call(shard, limit - len(events))
        return events

    async def dispatch(
        self, room: Mapping[BacklogKey, int], ticket_for: timedelta, post: PostTickets | None = None
    ) -> list[Ticket]:
        tickets: list[Ticket] = []
        for shard in self._store.shards():
            used = Counter(ticket.backlog_key for ticket in tickets)
            left = {backlog: free - used[backlog] for backlog, free in room.items()}
            tickets += await shard.dispatch(left, ticket_for, post)
        return tickets

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        claims: list[Claim] = []
        for shard in self._store.shards():
            used = Counter(claim.queue for claim in claims)
            left = [Share(share.queue, share.types, share.jobs - used[share.queue]) for share in asked]
            claims += await shard.claim_next(left, worker, lease)
        return claims

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        return sorted([job for shard in self._store.shards() for job in await shard.overdue_tickets(after, limit)])[
            :limit
        ]

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return sum([await shard.expire_tickets(jobs) for shard in self._store.shards()])

    async def due_summary(self) -> DueSummary:
        found = [await shard.due_summary() for shard in self._store.shards()]
        backlog = frozenset[BacklogKey]().union(*(one.backlog for one in found))
        return DueSummary(backlog, min([one.next_due_at for one in found if one.next_due_at], default=None))

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        found = [one for shard in self._store.shards() for one in await shard.due_before(before, limit)]
        return sorted(found, key=itemgetter(1))[:limit]

    async def running_by_worker(self) -> dict[str, int]:
        held: Counter[str] = Counter()
        for shard in self._store.shards():
            held.update(await shard.running_by_worker())
        return dict(held)

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        jobs, owners = 0, list[JobId]()
        for shard in self._store.shards():
            pruned = await shard.prune(keep, limit - jobs)
            jobs, owners = jobs + pruned.jobs, owners + list(pruned.owners)
        return Pruned(jobs, tuple(owners))
