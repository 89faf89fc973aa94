"""Schedules over shards: each lives with the jobs of its ticks at the place of its name."""

import heapq
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from penstock.model.errors import MapChanged
from penstock.model.schedule import Due, Schedule, Ticked, TickMove
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.roster import ShardDirectory
from penstock.orchestrator.spread import ask_all, split
from penstock.store.seam import schedule_key

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
