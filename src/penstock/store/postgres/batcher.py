"""Group commit: calls of one move that pile up while a batch is on its way go together in the next.

Each move has a lane of its own, so that none waits for another. A caller is answered only after the commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.store.postgres.connection import HeldElsewhere, refused
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.statements import Connection, Session

BATCH_ITEMS = 2_000

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Move = Callable[[Session, Sequence[Item]], Awaitable[list[Answer]]]


class MoveBatcher(Generic[Item, Answer]):
    """One batch at a time, of at most BATCH_ITEMS unless a single call has more."""

    def __init__(self, connections: ConnectionPool, given: Callable[[], int | None], move: Move[Item, Answer]) -> None:
        self._connections = connections
        self._given = given
        self._move = move
        self._calls: deque[_QueuedCall[Item, Answer]] = deque()
        self._serving: asyncio.Task[None] | None = None

    async def each(self, items: Sequence[Item]) -> list[Answer]:
        """Move the items; one answer each, in order. A caller that goes away does not disturb the others."""
        if not items:
            return []
        call: _QueuedCall[Item, Answer] = _QueuedCall(items)
        self._calls.append(call)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await call.future

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._serving is not None:
            await self._serving

    async def _serve(self) -> None:
        while self._calls:
            await self._settle_batch(self._batch())
        self._serving = None

    def _batch(self) -> "list[_QueuedCall[Item, Answer]]":
        calls = [self._calls.popleft()]
        size = len(calls[0].items)
        while self._calls and size + len(self._calls[0].items) <= BATCH_ITEMS:
            calls.append(self._calls.popleft())
            size += len(calls[-1].items)
        return calls

    async def _settle_batch(self, calls: "list[_QueuedCall[Item, Answer]]") -> None:
        """Together; when one of them errs, each by itself. In an outage those who wait are told too: it is theirs."""
        try:
            await self._run_batch(calls)
        except HeldElsewhere as error:
            if len(calls) == 1:
                calls[0].fail(error)
            else:
                # At once: the one that has to wait for the lock again must not keep the others waiting.
                await asyncio.gather(*(self._settle_batch([call]) for call in calls))
        except StoreUnavailable as error:
            waiting, self._calls = list(self._calls), deque()
            for call in (*calls, *waiting):
                call.fail(error)
        except Exception as error:  # noqa: BLE001 - the fault of one call, and it must not reach the others
            if len(calls) == 1:
                calls[0].fail(refused(error))
            else:
                for call in calls:
                    await self._settle_batch([call])

    async def _run_batch(self, calls: "list[_QueuedCall[Item, Answer]]") -> None:
        items = calls[0].items if len(calls) == 1 else [item for call in calls for item in call.items]
        answers = await self._connections.carry_out(partial(self._run_move, items))
        start = 0
        for call in calls:
            call.answer(answers[start : start + len(call.items)])
            start += len(call.items)

    async def _run_move(self, items: Sequence[Item], connection: Connection) -> list[Answer]:
        return await self._move(Session(connection, self._given()), items)


class _QueuedCall(Generic[Item, Answer]):
    """What one caller asked for. One that has gone away is not missed."""

    __slots__ = ("future", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()

    def answer(self, answers: list[Answer]) -> None:
        if not self.future.done():
            self.future.set_result(answers)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
