"""Calls at the same time, but not all of them."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")

CONCURRENT_CALLS = 32


async def gather_bounded(calls: Iterable[Awaitable[T]], most: int = CONCURRENT_CALLS) -> list[T]:
    """The answers in order; at most so many calls are under way at once. The first error is raised, after all ended."""
    room = asyncio.Semaphore(most)

    async def run(call: Awaitable[T]) -> T:
        async with room:
            return await call

    answers = await asyncio.gather(*(run(call) for call in calls), return_exceptions=True)
    return [_value(answer) for answer in answers]


def _value(answer: T | BaseException) -> T:
    if isinstance(answer, BaseException):
        raise answer
    return answer
