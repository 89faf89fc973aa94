"""Batches that go to several shards: each shard gets its part by itself, so that one that fails hurts no other."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from penstock.model.errors import StoreUnavailable, Unavailable

PATIENCE = timedelta(milliseconds=100)
"""How long those who need not have every answer wait for other shards once the first has answered."""

SLOW = StoreUnavailable("a shard is slow; ask again")

Place = TypeVar("Place", bound=Hashable)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Call = asyncio.Future[Answer]


def split(items: Iterable[Item], place: Callable[[Item], Place]) -> dict[Place, list[Item]]:
    """The items by their place, in order."""
    found: dict[Place, list[Item]] = defaultdict(list)
    for item in items:
        found[place(item)].append(item)
    return found


async def each(
    parts: Sequence[Sequence[Item]],
    move: Callable[[Sequence[Item]], Awaitable[Answer]],
    patience: timedelta | None = None,
) -> list[Answer | Unavailable]:
    """Move all parts at once; for each its answer, or why there is none. A single part raises instead.

    With `patience`, a part that takes that much longer than the fastest one is given up: it may yet be moved.
    """
    if len(parts) <= 1:
        return [await move(part) for part in parts]
    calls: list[Call[Answer]] = [asyncio.ensure_future(move(part)) for part in parts]
    late = await latecomers(calls, patience)
    for call in late:
        keep(call)
    troubles = [SLOW if call in late else trouble_of(call) for call in calls]
    return [call.result() if trouble is None else trouble for call, trouble in zip(calls, troubles, strict=True)]


async def latecomers(calls: Collection[Call[Answer]], patience: timedelta | None) -> set[Call[Answer]]:
    """Wait for all calls, but no longer than `patience` after the first; those that have not ended then."""
    _, late = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    if late:
        _, late = await asyncio.wait(late, timeout=None if patience is None else patience.total_seconds())
    return late


_kept: set[asyncio.Future[Any]] = set()


def keep(call: Call[Any]) -> None:
    """Let a call end that nobody waits for any more."""
    _kept.add(call)
    call.add_done_callback(_forget)


async def to_the_end(work: Awaitable[Answer]) -> Answer:
    """The answer of `work`, which goes on to its end even when the caller is cancelled meanwhile."""
    call = asyncio.ensure_future(work)
    keep(call)
    return await asyncio.shield(call)


def _forget(call: Call[Any]) -> None:
    _kept.discard(call)
    if not call.cancelled():
        call.exception()


def trouble_of(call: Call[Any]) -> Unavailable | None:
    """Why an ended call gave no answer, if it was unavailable; anything worse is raised."""
    trouble = call.exception()
    if trouble is None or isinstance(trouble, Unavailable):
        return trouble
    raise trouble
