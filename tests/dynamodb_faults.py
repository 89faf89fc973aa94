"""Processes that die between two writes to a table, answers that are lost, and an index that is late."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from penstock.aws import AwsRefusal
from penstock.model.errors import StoreUnavailable
from penstock.store.dynamodb import DynamoStore
from penstock.store.dynamodb.table import DynamoTable, QueryPage
from penstock.store.seam import Store

WRITES = frozenset(
    {"BatchExecuteStatement", "BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"}
)


def table_of(store: Store) -> DynamoTable:
    """The table of a store, which tests know by its seam only."""
    assert isinstance(store, DynamoStore)
    return store.table


class Died(Exception):
    """The process ends here."""


_faulty: ContextVar[bool] = ContextVar("faulty", default=False)


class Faults:
    """Stands between a store and its table: of the writes that a caller asks for, some end badly."""

    def __init__(self, store: Store) -> None:
        self._call = table_of(store).call
        self._writes = 0
        self._fault: Callable[[int], str | None] = lambda number: None
        self._happens: Callable[[], Awaitable[None]] | None = None
        table_of(store).call = self._asked  # type: ignore[method-assign]

    def die(self, write: int, *, after: bool) -> AbstractContextManager[None]:
        """Within, the given write ends the process, before or after it is done."""
        return self._with(lambda number: ("die after" if after else "die") if number == write else None)

    def lose_answers(self, every: int) -> AbstractContextManager[None]:
        """Within, writes are done, and every so many of them are not answered."""
        return self._with(lambda number: "lose" if number % every == 0 else None)

    def before(self, write: int, happens: Callable[[], Awaitable[None]]) -> AbstractContextManager[None]:
        """Within, something else happens before the given write."""
        self._happens = happens
        return self._with(lambda number: "wait" if number == write else None)

    @contextmanager
    def _with(self, fault: Callable[[int], str | None]) -> Iterator[None]:
        """Only for the calls of this task: what goes on beside it is another's."""
        self._writes, self._fault = 0, fault
        token = _faulty.set(True)
        try:
            yield
        finally:
            _faulty.reset(token)

    async def _asked(self, action: str, **arguments: Any) -> dict[str, Any]:
        if action not in WRITES or not _faulty.get():
            return await self._call(action, **arguments)
        self._writes += 1
        fault = self._fault(self._writes)
        if fault == "die":
            raise Died
        if fault == "wait" and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()
        answer = await self._call(action, **arguments)
        if fault == "die after":
            raise Died
        if fault == "lose":
            raise StoreUnavailable(f"the answer to {action} was lost")
        return answer


class LateIndex:
    """Answers queries of an index with what was true at an earlier time, until it is let go."""

    def __init__(self, store: Store, index: str) -> None:
        self._index = index
        self._query = table_of(store).query
        self._frozen: QueryPage | None = None
        table_of(store).query = self._asked  # type: ignore[method-assign]

    async def freeze(self, partition: str) -> None:
        """From now on it shows what it shows now."""
        self._frozen = await self._query(partition, index=self._index)

    def let_go(self) -> None:
        self._frozen = None

    async def _asked(self, *args: Any, **options: Any) -> QueryPage:
        if self._frozen is not None and options.get("index") == self._index:
            return self._frozen
        return await self._query(*args, **options)


class Gate:
    """Stops a store before each batch of conditional writes, until it is let through."""

    def __init__(self, store: Store) -> None:
        self._execute = table_of(store).execute
        self._shut = True
        self._arrived = asyncio.Event()
        self._open = asyncio.Event()
        table_of(store).execute = self._asked  # type: ignore[method-assign]

    async def arrival(self) -> None:
        """Return once a batch stands before the gate."""
        await self._arrived.wait()
        self._arrived.clear()

    def let_through(self) -> None:
        """Let one batch through."""
        self._open.set()

    def let_all_through(self) -> None:
        self._shut = False
        self._open.set()

    async def _asked(self, writes: Any) -> list[bool]:
        if self._shut:
            self._arrived.set()
            await self._open.wait()
            self._open.clear()
        return await self._execute(writes)


class SentTwice:
    """Within, the library sends every write twice, as it does when the first answer is lost; the second one counts."""

    def __init__(self, store: Store) -> None:
        self._table = table_of(store)
        self._call = table_of(store).call

    def __enter__(self) -> None:
        self._table.call = self._asked  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        self._table.call = self._call  # type: ignore[method-assign]

    async def _asked(self, action: str, **arguments: Any) -> dict[str, Any]:
        if action in WRITES:
            with suppress(AwsRefusal):
                await self._call(action, **arguments)
        return await self._call(action, **arguments)
