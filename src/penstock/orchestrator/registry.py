"""Notices and workers are stored on all shards that answer, roles and schedules on the shard of their key."""

import heapq
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain, islice
from operator import attrgetter

from penstock.model.clock import EPOCH
from penstock.model.errors import MapChanged, Unavailable
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.workers import EVER, DrainRequest, Seen, Worker, most_urgent
from penstock.orchestrator.directory import ABOUT_SHARDS, ShardDirectory
from penstock.orchestrator.fan_out import ask_all, ask_each
from penstock.orchestrator.shard import GuardedShard
from penstock.store.answers import require
from penstock.store.seam import role_key, schedule_key

ROUTED_AGAIN = 3
"""How often a schedule is routed again because the ring has changed."""


class ShardedRegistry:
    """Everything but jobs. What each method promises is written in the seam."""

    def __init__(self, directory: ShardDirectory) -> None:
        self.directory = directory

    # -- notices, roles and workers

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        """One shard that accepts is enough: the others are repaired when they are read."""
        await ask_all(self.directory.healthy, lambda shard: shard.put_notices(notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        """Kept only when all that answer keep it: a shard that refuses knows something newer."""
        answers = await ask_all(self.directory.healthy, lambda shard: shard.change_notices(changes))
        kept = [all(each) for each in zip(*answers.values(), strict=True)]
        self.directory.remember(change.notice for change, counts in zip(changes, kept, strict=True) if counts)
        return kept

    async def notices(self) -> list[Notice]:
        """All but those about shards, which are the orchestrator's own. Shards that lack one are repaired."""
        counting = await self.directory.notices()
        return [one for _, one in sorted(counting.items()) if one.kind not in ABOUT_SHARDS]

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        """On the role's shard; and first where it lived before the ring changed, which other processes may still use.

        The fences of all are added up, so that a holder that takes over from such a process shows a higher one.
        """
        fences = 0
        for shard in self.directory.former_shards(role_key(role)):
            with suppress(Unavailable):
                if (fence := await shard.acquire_role(role, holder, span)) is None:
                    return None
                fences += fence
        fence = await self.directory.shard_for_key(role_key(role)).acquire_role(role, holder, span)
        return None if fence is None else fences + fence

    async def release_role(self, role: str, holder: str) -> None:
        key = role_key(role)
        for shard in (*self.directory.former_shards(key), self.directory.shard_for_key(key)):
            await shard.release_role(role, holder)

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        answers = await ask_all(self.directory.healthy, lambda shard: shard.put_worker(worker))
        return most_urgent(answers.values())

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        """On every shard that answers: one that the worker reports to is enough."""
        found = await ask_all(self.directory.healthy, lambda shard: shard.ask_to_drain(names, patience))
        return sorted(set(chain(*found.values())))

    async def delete_worker(self, worker: str) -> None:
        await ask_all(self.directory.healthy, lambda shard: shard.delete_worker(worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        """By id, each as the shard reports it that has seen it last."""
        found = await ask_all(self.directory.healthy, lambda shard: shard.workers(seen, limit))
        last = sorted(_newest(chain(*found.values())), key=_seen_at, reverse=True)[:limit]
        return sorted(last, key=lambda worker: worker.id)

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        """On every shard: each worker is on all of them. One that others still see is back with its next heartbeat."""
        found = await ask_all(self.directory.healthy, lambda shard: shard.prune_workers(before, limit))
        return _newest(chain(*found.values()))

    # -- schedules

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        """Where the ring puts it now, however often that changes meanwhile."""
        for _ in range(ROUTED_AGAIN):
            try:
                return await self._put(schedule, expected_version)
            except MapChanged:
                await self.directory.catch_up()
        return await self._put(schedule, expected_version)

    async def _put(self, schedule: Schedule, expected_version: int | None) -> Schedule | None:
        shard, epoch = self._shard_of(schedule.name), self.directory.map.epoch
        return await shard.put_schedule(schedule, expected_version, epoch)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return require(
            await ask_each(names, self._shard_of, lambda shard, mine: shard.get_schedules(mine), lambda _: None)
        )

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        found = await ask_all(self.directory.healthy, lambda shard: shard.schedules(after, limit))
        return list(islice(heapq.merge(*found.values(), key=attrgetter("name")), limit))

    async def drop_schedule(self, name: str) -> bool:
        return await self._shard_of(name).drop_schedule(name)

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        found = await ask_all(self.directory.healthy, lambda shard: shard.due_schedules(before, limit))
        dues = [due for mine in found.values() for due in mine]
        return sorted(dues, key=lambda due: (_due_at(due, before), due.schedule.name))[:limit]

    async def next_tick(self) -> datetime | None:
        found = await ask_all(self.directory.healthy, lambda shard: shard.next_tick())
        return min((at for at in found.values() if at is not None), default=None)

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        return require(
            await ask_each(
                moves,
                lambda move: self._shard_of(move.decision.name),
                lambda shard, mine: shard.tick(mine, ticket_for),
                lambda _: Ticked(applied=False),
            )
        )

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._shard_of(name).ticks(name, before, limit)

    def _shard_of(self, schedule: str) -> GuardedShard:
        return self.directory.shard_for_key(schedule_key(schedule))


def _newest(workers: Iterable[Worker]) -> list[Worker]:
    """Each worker as it was seen last, by id."""
    newest: dict[str, Worker] = {}
    for worker in workers:
        known = newest.get(worker.id)
        if known is None or _seen_at(worker) > _seen_at(known):
            newest[worker.id] = worker
    return [newest[name] for name in sorted(newest)]


def _seen_at(worker: Worker) -> datetime:
    return worker.seen_at or EPOCH


def _due_at(due: Due, before: datetime) -> datetime:
    """The earliest of the reasons for which it is due."""
    schedule = due.schedule
    pending = schedule.pending_tick_at if not due.active else None
    reasons = [at for at in (schedule.next_tick_at, pending) if at is not None and (at < before or at == pending)]
    return min(reasons, default=due.completed_at or schedule.created_at)
