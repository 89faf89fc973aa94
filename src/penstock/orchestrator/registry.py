"""Notices and workers over shards: told to all that are well, merged from all that answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain

from penstock.model.errors import Unavailable
from penstock.model.notices import Notice, NoticeChange
from penstock.model.timing import EPOCH
from penstock.model.workers import Seen, Worker
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.roster import ABOUT_SHARDS, ShardDirectory
from penstock.orchestrator.spread import ask_all
from penstock.store.seam import role_key


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
