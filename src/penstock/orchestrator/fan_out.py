"""Many shards at once: a batch split and put back in order, a question to all, a limit shared among them."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from penstock.model.errors import StoreUnavailable, Unavailable
from penstock.orchestrator.shard import GuardedShard

T = TypeVar("T")
A = TypeVar("A")
K = TypeVar("K", bound=Hashable)

Shards = Sequence[GuardedShard]


async def gather_answers(calls: Iterable[Awaitable[A]]) -> list[A | Unavailable]:
    """All answers, in order; Unavailable is one of them. Nothing is raised before all are over."""
    calls = list(calls)
    if len(calls) == 1:
        return [await _answer_of(calls[0])]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    found: list[A | Unavailable] = []
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, Unavailable):
            raise end
        found.append(end)
    return found


async def _answer_of(call: Awaitable[A]) -> A | Unavailable:
    """Without a task of its own: most calls are about one shard."""
    try:
        return await call
    except Unavailable as error:
        return error


async def ask_all(shards: Shards, call: Callable[[GuardedShard], Awaitable[A]]) -> dict[GuardedShard, A]:
    """What each shard says, without those that do not answer; StoreUnavailable when none does."""
    ends = await gather_answers([call(shard) for shard in shards])
    found = {shard: end for shard, end in zip(shards, ends, strict=True) if not isinstance(end, Unavailable)}
    if not found:
        raise next((end for end in ends if isinstance(end, Unavailable)), None) or StoreUnavailable(
            "no shard answers; retry in a moment"
        )
    return found


async def split(
    items: Sequence[T],
    find: Callable[[T], GuardedShard | None],
    call: Callable[[GuardedShard, Sequence[T]], Awaitable[list[A]]],
    unknown: Callable[[T], A],
) -> list[A]:
    """One answer each, in order: each shard is asked about its own items, all at once; `unknown` answers the rest.

    When a shard gives no answer, neither does this: raised once all are over.
    """
    places: defaultdict[GuardedShard | None, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        places[find(item)].append(index)
    answers: dict[int, A] = {index: unknown(items[index]) for index in places.pop(None, ())}
    asked = {shard: indexes for shard, indexes in places.items() if shard is not None}
    ends = await gather_answers([call(shard, [items[index] for index in indexes]) for shard, indexes in asked.items()])
    for indexes, end in zip(asked.values(), ends, strict=True):
        if isinstance(end, Unavailable):
            raise end
        answers.update(zip(indexes, end, strict=True))
    return [answers[index] for index in range(len(items))]
