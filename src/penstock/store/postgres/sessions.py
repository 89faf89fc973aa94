"""Runs work on the store's connections: as single statements, as one transaction, as a snapshot, or in batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.model.clock import Clock, to_millis
from penstock.model.errors import StoreUnavailable
from penstock.store.batcher import Batcher
from penstock.store.postgres.connection import HeldElsewhere, refused
from penstock.store.postgres.journal import number_entries
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.statements import Connection, PostgresTransaction, Session, in_transaction

BATCH_ITEMS = 2_000
NUMBER_EVERY = 256
"""Writes of this process after which it numbers the journal: counts are summed from all that has no number."""

Item = TypeVar("Item")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Sessions:
    """Gives each piece of work a connection. `clock` is a test's; None is the server's own."""

    def __init__(self, connections: ConnectionPool, clock: Clock | None, *, keep_events: bool) -> None:
        self._connections = connections
        self._clock = clock
        self.keep_events = keep_events
        self._writes = 0
        self._numbering: asyncio.Task[None] | None = None

    def test_now(self) -> int | None:
        return None if self._clock is None else to_millis(self._clock.now())

    def batch(self, move: Callable[[Session, Sequence[Item]], Awaitable[list[T]]]) -> Batcher[Item, T]:
        """Group commit for one move; see `Batcher`."""

        async def run(items: Sequence[Item]) -> list[T]:
            if not items:
                return []
            work = self._connections.carry_out(lambda connection: move(self._session(connection), items))
            return await _refuse_faults(work)

        return Batcher(run, batch_items=BATCH_ITEMS, separate=HeldElsewhere, fail_waiting=True)

    async def move(self, move: Callable[[Session], Awaitable[T]]) -> T:
        """Run a move; each of its statements commits by itself."""

        async def run(connection: Connection) -> T:
            return await move(self._session(connection))

        self.note_write()
        return await self.read(run)

    async def whole(self, work: Callable[[PostgresTransaction], Awaitable[T]]) -> T:
        """Run the work as one transaction."""

        async def run(connection: Connection) -> T:
            return await in_transaction(connection, self.test_now(), work, keep_events=self.keep_events)

        return await self.read(run)

    async def snapshot(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        """Run reads of several statements in one snapshot."""

        async def run(connection: Connection) -> T:
            async with connection.transaction():
                await connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await read(connection)

        return await self.read(run)

    async def read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        return await _refuse_faults(self._connections.run(read))

    def note_write(self) -> None:
        """Number the journal after every NUMBER_EVERY writes, in the background."""
        self._writes += 1
        if self._writes >= NUMBER_EVERY and self._numbering is None:
            self._writes = 0
            self._numbering = asyncio.create_task(self._number())

    async def close(self) -> None:
        """Finish the numbering that is under way."""
        if self._numbering is not None:
            await self._numbering

    def _session(self, connection: Connection) -> Session:
        return Session(connection, self.test_now(), keep_events=self.keep_events)

    async def _number(self) -> None:
        try:
            await self._connections.run(number_entries)
        except StoreUnavailable as error:
            logger.info("the journal is numbered later: %s", error)
        finally:
            self._numbering = None


async def _refuse_faults(work: Awaitable[T]) -> T:
    try:
        return await work
    except Exception as error:
        raise refused(error) from error
