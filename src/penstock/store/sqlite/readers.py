"""Snapshots: a few threads with a read-only connection each, beside the writer and never in its way."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from penstock.model.errors import StoreUnavailable
from penstock.store.sqlite.connection import OUTAGES, open_reader, unavailable

READERS = 2

T = TypeVar("T")


class Readers:
    """Runs reads, each in one snapshot that holds every commit that returned before it was asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = False
        self._idle = deque(open_reader(path) for _ in range(READERS))
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix=f"penstock-reader-{path.name}")

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"the store {self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._snapshot, work)

    async def close(self) -> None:
        """Finish what was asked for, then close the connections."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    def _snapshot(self, work: Callable[[apsw.Connection], T]) -> T:
        # As many connections as threads: one is always idle.
        connection = self._idle.pop()
        try:
            return _in_snapshot(connection, work)
        except OUTAGES as error:
            raise unavailable(self._path, error) from error
        finally:
            self._idle.append(connection)


def _in_snapshot(connection: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        connection.execute("ROLLBACK")
