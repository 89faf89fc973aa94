"""Connections to a database file, its lock and migrations, and the errors that mean the shard is unavailable."""

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import IO, Self, TypeVar

import apsw

from penstock.model.errors import Invalid, StoreUnavailable

BUSY_MILLIS = 5_000
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 16_384
WAL_LIMIT_BYTES = 64 * 1024 * 1024
STATEMENTS_CACHED = 256

OUTAGES = (
    apsw.AuthError,
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
)
"""Errors of the file or the machine. Every other error of SQLite is the fault of one call."""

FAULTS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
"""A value that breaks an invariant of the tables: the fault of the call."""


def open_writer(path: Path) -> apsw.Connection:
    """The only connection that may write and checkpoint. Creates the file, readable by its owner alone.

    No auto_vacuum: under a steady retention the pages that pruning frees are soon filled again, while the pointer maps
    of auto_vacuum would be paid for by every insert. A file that must shrink is vacuumed while the server is stopped.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE, WRITER_CACHE_KIB)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("journal_size_limit", WAL_LIMIT_BYTES)
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection for snapshots; it cannot write."""
    return _connect(path, apsw.SQLITE_OPEN_READONLY, READER_CACHE_KIB)


def unavailable(path: Path, error: Exception) -> StoreUnavailable:
    """The error for an outage: which file, and SQLite's message."""
    return StoreUnavailable(f"the store {path} cannot be used now: {error}; check its disk, then try again")


def refused(error: Exception) -> Exception:
    """The error for a faulty call: Invalid if it breaks an invariant of the tables, else the error itself."""
    if isinstance(error, FAULTS):
        return Invalid(f"the store cannot keep this: {error}")
    return error


def _connect(path: Path, flags: int, cache_kib: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS_CACHED)
    connection.set_busy_timeout(BUSY_MILLIS)
    connection.pragma("cache_size", -cache_kib)
    connection.pragma("temp_store", "memory")
    # All useful indexes are declared. At 256 rows the planner would index those instead, and scan all the jobs.
    connection.pragma("automatic_index", False)
    return connection


READERS = 2

T = TypeVar("T")


class Readers:
    """Runs reads, each in one snapshot with every commit that returned before the read began."""

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
        """Finish accepted reads, then close the connections."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    def _snapshot(self, work: Callable[[apsw.Connection], T]) -> T:
        # There are as many connections as threads, so one is always idle.
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


class LockFile:
    """An exclusive lock, held until `release`. The file stays behind, with the last owner's process id in it."""

    def __init__(self, held: IO[str]) -> None:
        self._held = held

    @classmethod
    def acquire(cls, database: Path) -> Self:
        """The lock of a database; StoreUnavailable, naming the owner, when another holds it."""
        path = database.with_name(database.name + ".lock")
        held = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+")
        try:
            # flock, not lockf: lockf would let the same process acquire it twice.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with held:
                owner = held.read().strip()
            raise StoreUnavailable(
                f"{database} is open in process {owner}: stop it or choose another --data folder"
            ) from None
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        return cls(held)

    def release(self) -> None:
        self._held.close()


def migrations() -> dict[int, str]:
    """Every migration's SQL by its number, in order."""
    folder = files("penstock.store.sqlite") / "migrations"
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {int(name.partition("_")[0]): entry.read_text("utf-8") for name, entry in scripts}


def migrate(connection: apsw.Connection) -> None:
    """Apply what is missing, each migration in a transaction of its own; refuse a database newer than this code."""
    known = migrations()
    version = int(str(connection.pragma("user_version")))
    if version > max(known):
        raise StoreUnavailable(
            f"{connection.filename} has schema {version}, this Penstock knows up to {max(known)}: "
            "start the newer Penstock that wrote it, or choose another --data folder"
        )
    for number, script in known.items():
        if number > version:
            _apply(connection, number, script)


def _apply(connection: apsw.Connection, number: int, script: str) -> None:
    with connection:
        connection.execute(script)
        connection.pragma("user_version", number)
