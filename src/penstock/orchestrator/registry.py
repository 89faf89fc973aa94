"""Notices and workers over shards: told to all that are well, merged from all that answer."""

from collections.abc import Awaitable, Callable, Sequence

from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.timing import EPOCH
from penstock.model.workers import Worker
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.roster import Roster
from penstock.orchestrator.spread import answered


async def tell_all(roster: Roster, call: Callable[[GuardedShard], Awaitable[None]]) -> None:
    """One shard that accepts is enough: the others learn it when they are read."""
    await answered(roster.well, call)


async def change_notices(roster: Roster, changes: Sequence[NoticeChange]) -> list[bool]:
    """Kept by all that answer, or not at all sure to count: a shard that refuses knows something newer."""
    answers = await answered(roster.well, lambda shard: shard.change_notices(changes))
    return [all(kept) for kept in zip(*answers.values(), strict=True)]


async def notices(roster: Roster) -> list[Notice]:
    """All but those about shards, which are the orchestrator's own."""
    counting = await roster.notices()
    return [one for _, one in sorted(counting.items()) if one.kind != NoticeKind.SHARD]


async def workers(roster: Roster) -> list[Worker]:
    """By id, each as the shard says that has seen it last."""
    newest: dict[str, Worker] = {}
    for found in (await answered(roster.well, lambda shard: shard.workers())).values():
        for worker in found:
            known = newest.get(worker.id)
            if known is None or (worker.seen_at or EPOCH) > (known.seen_at or EPOCH):
                newest[worker.id] = worker
    return [newest[name] for name in sorted(newest)]
