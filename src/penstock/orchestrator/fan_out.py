"""Many shards at once: a question to all of them, or a batch split by shard and put back in order."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from penstock.model.errors import StoreUnavailable, Unavailable
from penstock.orchestrator.shard import GuardedShard
from penstock.store.answers import gather_answers

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def ask_all(
    shards: Sequence[GuardedShard], call: Callable[[GuardedShard], Awaitable[Answer]]
) -> dict[GuardedShard, Answer]:
    """The answer of each shard that gives one; StoreUnavailable when none does."""
    answers = await gather_answers([call(shard) for shard in shards])
    found = {shard: one for shard, one in zip(shards, answers, strict=True) if not isinstance(one, Unavailable)}
    if not found:
        raise next((one for one in answers if isinstance(one, Unavailable)), None) or StoreUnavailable(
            "no shard answers; retry in a moment"
        )
    return found


async def ask_each(
    items: Sequence[Item],
    find: Callable[[Item], GuardedShard | None],
    call: Callable[[GuardedShard, Sequence[Item]], Awaitable[Sequence[Answer]]],
    unknown: Callable[[Item], Answer],
    patience: timedelta | None = None,
) -> Sequence[Answer | Unavailable]:
    """One answer each, in order: every shard is asked about its own items, all at once; `unknown` answers the rest.

    What a shard gives no answer for is Unavailable; with `patience` also what it answers that much later than the
    first. When all items belong to a single shard, its error is raised instead.
    """
    by_shard: defaultdict[GuardedShard | None, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        by_shard[find(item)].append(index)
    answers: dict[int, Answer | Unavailable] = {index: unknown(items[index]) for index in by_shard.pop(None, ())}
    asked = {shard: indexes for shard, indexes in by_shard.items() if shard is not None}
    if len(asked) == 1 and not answers:
        return await call(next(iter(asked)), items)
    found = await gather_answers(
        [call(shard, [items[index] for index in indexes]) for shard, indexes in asked.items()], patience
    )
    for indexes, mine in zip(asked.values(), found, strict=True):
        answers.update(zip(indexes, [mine] * len(indexes) if isinstance(mine, Unavailable) else mine, strict=True))
    return [answers[index] for index in range(len(items))]
