"""Group commit: calls that arrive while a batch is on its way go together in the next one.

    caller 1 ──┐                    ┌── batch 1: caller 1            (commit)
    caller 2 ──┼─► Batcher.submit ──┤
    caller 3 ──┘   queue while busy └── batch 2: callers 2 and 3     (one commit)

Each move has a batcher of its own, so that none waits for another. A caller is answered only after the commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from penstock.model.errors import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_Call: TypeAlias = "tuple[Sequence[Item], asyncio.Future[list[Answer]]]"

BATCH_ITEMS = 1_000


class Batcher(Generic[Item, Answer]):
    """Runs one `move` at a time, with the items of all calls that are waiting. It gives one answer per item, in order.

    A caller that goes away does not disturb the others. What happens to the calls of a batch whose move raises:
    - `separate`, an error that concerns only some of them (a lock): each runs again by itself, all at the same time;
    - Unavailable: they fail, and with `fail_waiting` the calls that wait for the next batch too;
    - anything else is the fault of one call: each runs again by itself, one after the other.
    """

    def __init__(
        self,
        move: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
        *,
        batch_items: int = BATCH_ITEMS,
        separate: type[Exception] | tuple[()] = (),
        fail_waiting: bool = False,
    ) -> None:
        self._move = move
        self._batch_items = batch_items
        self._separate = separate
        self._fail_waiting = fail_waiting
        self._waiting: list[_Call[Item, Answer]] = []
        self._running: asyncio.Future[None] | None = None

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[list[Answer]]":
        """The answers to these items, to be awaited."""
        answer: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, answer))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return answer

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._serve(self._next_batch())
        finally:
            self._running = None

    def _next_batch(self) -> "list[_Call[Item, Answer]]":
        """As many calls as fit, at least one."""
        count = size = 0
        for items, _ in self._waiting:
            size += len(items)
            if count and size > self._batch_items:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _serve(self, batch: "list[_Call[Item, Answer]]") -> None:
        items = batch[0][0] if len(batch) == 1 else [item for items, _ in batch for item in items]
        try:
            answers = await self._move(items)
        except Exception as error:  # noqa: BLE001 - told to the callers
            await self._recover(batch, error)
            return
        start = 0
        for items, answer in batch:
            if not answer.done():
                answer.set_result(answers[start : start + len(items)])
            start += len(items)

    async def _recover(self, batch: "list[_Call[Item, Answer]]", error: Exception) -> None:
        if len(batch) > 1 and isinstance(error, self._separate):
            # At the same time: the call that has to wait for the lock again must not hold up the others.
            await asyncio.gather(*(self._serve([call]) for call in batch))
        elif len(batch) > 1 and not isinstance(error, Unavailable):
            for call in batch:
                await self._serve([call])
        else:
            _fail(batch, error)
            if self._fail_waiting and isinstance(error, Unavailable) and not isinstance(error, self._separate):
                waiting, self._waiting = self._waiting, []
                _fail(waiting, error)


def _fail(batch: "list[_Call[Item, Answer]]", error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
