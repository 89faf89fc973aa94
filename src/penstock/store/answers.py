"""Answers of several shards at once: one that fails or is slow holds up no other."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from penstock.model.errors import StoreUnavailable, Unavailable

PATIENCE = timedelta(milliseconds=100)
"""How long a worker's move waits for the other shards once the first one has answered."""

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
Call = asyncio.Future[Answer]


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by their key, each group in the order given."""
    found: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def require(answers: Iterable[Answer | Unavailable]) -> list[Answer]:
    """All answers; the first that is Unavailable is raised."""
    found: list[Answer] = []
    for answer in answers:
        if isinstance(answer, Unavailable):
            raise answer
        found.append(answer)
    return found


async def gather_answers(
    calls: Iterable[Awaitable[Answer]], patience: timedelta | None = None
) -> list[Answer | Unavailable]:
    """The answer of each call, in order; Unavailable is one of them. Any other error is raised once all have ended.

    With `patience`, a call that takes that much longer than the fastest one answers as slow; it ends by itself.
    """
    calls = list(calls)
    if len(calls) == 1:
        return [await _answer(calls[0])]
    asked: list[Call[Answer]] = [asyncio.ensure_future(call) for call in calls]
    for call in asked:
        let_finish(call)
    late = await wait_for_all(asked, patience) if asked else set()
    errors = [StoreUnavailable("a shard is slow; ask again") if call in late else error_of(call) for call in asked]
    return [call.result() if error is None else error for call, error in zip(asked, errors, strict=True)]


async def _answer(call: Awaitable[Answer]) -> Answer | Unavailable:
    """Without a task of its own: most calls are about one shard."""
    try:
        return await call
    except Unavailable as error:
        return error


async def wait_for_all(calls: Collection[Call[Answer]], patience: timedelta | None) -> set[Call[Answer]]:
    """Wait for all calls, but no longer than `patience` after the first; returns those that have not ended then."""
    _, late = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    if late:
        _, late = await asyncio.wait(late, timeout=None if patience is None else patience.total_seconds())
    return late


def error_of(call: Call[Any]) -> Unavailable | None:
    """Why an ended call gave no answer, if it was Unavailable; any other error is raised."""
    error = call.exception()
    if error is None or isinstance(error, Unavailable):
        return error
    raise error


_unfinished: set[asyncio.Future[Any]] = set()


def let_finish(call: Call[Any]) -> None:
    """Let a call go on to its end though its answer is no longer awaited."""
    _unfinished.add(call)
    call.add_done_callback(_discard)


async def run_to_end(work: Awaitable[Answer]) -> Answer:
    """The answer of `work`, which goes on to its end even when the caller is cancelled meanwhile."""
    call = asyncio.ensure_future(work)
    let_finish(call)
    return await asyncio.shield(call)


def _discard(call: Call[Any]) -> None:
    _unfinished.discard(call)
    if not call.cancelled():
        call.exception()
