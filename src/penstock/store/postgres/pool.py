"""A pool of a few connections to one database, opened as needed. A connection that may be broken is closed."""

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import psycopg
from psycopg.errors import DiskFull
from psycopg.pq import TransactionStatus

from penstock.model.errors import StoreBusy, StoreUnavailable
from penstock.store.postgres.connection import (
    RETRIED,
    Connector,
    PostgresAddress,
    is_exhausted,
    is_outage,
    is_stale,
    is_unexpected,
    unavailable,
)
from penstock.store.postgres.statements import Connection

ATTEMPTS = 5
CONNECT_PAUSE = 0.5
"""Seconds between two requests for a connection to a server that gives no more."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ConnectionPool:
    """Runs work on a connection, at most `most` at a time, each within the deadline.

    Waiting for a free connection, here or at the server, is no outage: it raises StoreBusy after half a deadline.
    """

    def __init__(self, address: PostgresAddress, deadline: timedelta, most: int) -> None:
        self.address = address
        self._deadline = deadline
        self._connector = Connector(address, deadline)
        self._free = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False
        self.doubted = False
        """Whether the server's disk may be full: it has said so, and no probe has proved otherwise since."""
        self.on_restored: Callable[[Connection], Awaitable[object]] | None = None
        """Raises the epoch of a database that was restored; the work that met it is done after that."""
        self.on_connected: Callable[[Connection], Awaitable[object]] | None = None
        """Looks at the server of a new connection before anything else is asked of it."""

    async def run(self, work: Callable[[Connection], Awaitable[T]], patience: timedelta | None = None) -> T:
        """What the work returns. StoreUnavailable in an outage: then the work may have been done, or not.

        If the caller is cancelled the work runs to its end: breaking it off would cost the connection.
        """
        task = asyncio.create_task(self.carry_out(work, patience))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Finish what was accepted, then close the connections."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        while self._idle:
            await self._idle.pop().close()

    def _over(self, task: asyncio.Task[object]) -> None:
        """Retrieve the exception of work whose caller is gone, so that asyncio does not report it."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def carry_out(self, work: Callable[[Connection], Awaitable[T]], patience: timedelta | None = None) -> T:
        """As `run`, in the caller's own task, which must never be cancelled and must end before `close`."""
        if self._closed:
            raise StoreUnavailable(f"the store at {self.address.shown} is closed")
        until = asyncio.get_running_loop().time() + (patience or self._deadline / 2).total_seconds()
        await self._slot(until)
        try:
            return await self._attempts(work, until)
        except StoreUnavailable:
            raise
        except Exception as error:
            self.doubted |= isinstance(error, DiskFull)
            if is_unexpected(error):
                logger.error("a call of %s failed in the driver", self.address.shown, exc_info=error)
            if is_outage(error):
                raise unavailable(self.address, error) from error
            raise
        finally:
            self._free.release()

    async def _slot(self, until: float) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all connections of this process to {self.address.shown} are in use: try again, or raise "
                "store.connections"
            ) from None

    async def _attempts(self, work: Callable[[Connection], Awaitable[T]], until: float) -> T:
        """Run the work again if the server rolled it back to break a deadlock, or if the database was restored."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._attempt(work, until)
            except RETRIED:
                continue
            except psycopg.Error as error:
                if not is_stale(error) or self.on_restored is None:
                    raise
                await self._attempt(self.on_restored, until)
        return await self._attempt(work, until)

    async def _attempt(self, work: Callable[[Connection], Awaitable[T]], until: float) -> T:
        idle = self._take_idle()
        connection = idle or await self._obtain(until)
        watch = _LossWatch(connection)
        timer = asyncio.get_running_loop().call_later(self._deadline.total_seconds(), watch.cut)
        try:
            if idle is None and self.on_connected is not None:
                await self.on_connected(connection)
            return await work(connection)
        except psycopg.OperationalError as error:
            if watch.passed:
                self._connector.note_silence(connection)
                await self._close_idle()
                raise unavailable(self.address, f"no answer within {self._deadline.total_seconds():g} s") from error
            raise
        finally:
            timer.cancel()
            await self._give_back(connection)

    def _take_idle(self) -> Connection | None:
        """An idle connection that the server has not closed: data that arrives unasked means that it did."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _readable(connection.fileno()):
                return connection
            connection.pgconn.finish()
        return None

    async def _obtain(self, until: float) -> Connection:
        """A new connection; or, while the server has none left, the next one that another call returns."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._connector.connect()
            except psycopg.OperationalError as error:
                if not is_exhausted(error):
                    raise unavailable(self.address, error, sent=False) from error
                if (returned := await self._wait_for_return(min(CONNECT_PAUSE, until - loop.time()))) is not None:
                    return returned
                if loop.time() >= until:
                    raise StoreBusy(
                        f"the server of {self.address.shown} gives no more connections: try again, raise its "
                        "max_connections, or lower store.connections"
                    ) from error

    async def _wait_for_return(self, pause: float) -> Connection | None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=max(0.0, pause))
            return waiter.result() if waiter.done() else None
        finally:
            waiter.cancel()

    async def _close_idle(self) -> None:
        """Close the idle connections: a server that did not answer on one would cost a deadline on each."""
        while self._idle:
            await self._idle.pop().close()

    async def _give_back(self, connection: Connection) -> None:
        if connection.pgconn.transaction_status == TransactionStatus.IDLE and not connection.closed:
            self._hand_on(connection)
        else:
            connection.pgconn.finish()

    def _hand_on(self, connection: Connection) -> None:
        while self._waiting:
            if not (waiter := self._waiting.popleft()).done():
                waiter.set_result(connection)
                return
        self._idle.append(connection)


class _LossWatch:
    """Ends a wait for the server by shutting its socket down.

    Cancelling the waiting task would make psycopg ask the server to cancel the statement and wait for the answer: for
    ever, if the server does not answer.
    """

    def __init__(self, connection: Connection) -> None:
        self.passed = False
        self._connection = connection

    def cut(self) -> None:
        self.passed = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as link:
            link.shutdown(socket.SHUT_RDWR)


def _readable(fileno: int) -> bool:
    poll = select.poll()
    poll.register(fileno, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
