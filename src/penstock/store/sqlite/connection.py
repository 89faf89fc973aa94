"""How a Penstock database file is opened, and which of SQLite's errors mean that the shard is unavailable."""

import os
from pathlib import Path

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
"""What breaks an invariant of the tables; the fault of what was to be kept."""


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
    """What a caller is told about an outage: which file, and what SQLite said."""
    return StoreUnavailable(f"the store {path} cannot be used now: {error}; check its disk, then try again")


def refused(error: Exception) -> Exception:
    """What the caller at fault is told: Invalid for what breaks an invariant of the tables, else the error itself."""
    if isinstance(error, FAULTS):
        return Invalid(f"the store cannot keep this: {error}")
    return error


def _connect(path: Path, flags: int, cache_kib: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS_CACHED)
    connection.set_busy_timeout(BUSY_MILLIS)
    connection.pragma("cache_size", -cache_kib)
    connection.pragma("temp_store", "memory")
    # Every index worth having is declared. At 256 rows the planner would rather index those and scan all the jobs.
    connection.pragma("automatic_index", False)
    return connection
