"""Callers that come while others are served, served together next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.model.errors import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_ITEMS = 1000


class Batcher(Generic[Item, Answer]):
    """One call of `move` at a time, for all who have asked meanwhile. It gives one answer per item, in order.

    What it raises as Unavailable is told to all of them; any other fault only to the one whose items have it.
    """

    def __init__(self, move: Callable[[Sequence[Item]], Awaitable[list[Answer]]]) -> None:
        self._move = move
        self._asked: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._running: asyncio.Future[None] | None = None

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[list[Answer]]":
        """The answers to these items, to be awaited."""
        answer: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._asked.append((items, answer))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return answer

    async def _run(self) -> None:
        try:
            while self._asked:
                await self._serve(self._next())
        finally:
            self._running = None

    def _next(self) -> "list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]":
        """As many callers as fit in one call, at least one."""
        count = size = 0
        for items, _ in self._asked:
            size += len(items)
            if count and size > MOST_ITEMS:
                break
            count += 1
        taken, self._asked = self._asked[:count], self._asked[count:]
        return taken

    async def _serve(self, asked: "list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]") -> None:
        try:
            answers = await self._move(
                asked[0][0] if len(asked) == 1 else [item for items, _ in asked for item in items]
            )
        except Exception as error:  # noqa: BLE001 - told to those who asked
            await self._tell(asked, error)
            return
        start = 0
        for items, answer in asked:
            if not answer.done():
                answer.set_result(answers[start : start + len(items)])
            start += len(items)

    async def _tell(self, asked: "list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]", fault: Exception) -> None:
        if len(asked) > 1 and not isinstance(fault, Unavailable):
            for one in asked:
                await self._serve([one])
        else:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(fault)
