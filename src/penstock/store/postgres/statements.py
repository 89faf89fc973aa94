"""The SQL of the store: one statement per file in `sql/`, read once."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from psycopg import AsyncConnection

from penstock.model.clock import from_millis
from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.store.rows import Row
from penstock.store.statements import load_statement

Connection = AsyncConnection[Row]


def load(name: str) -> bytes:
    """The text of one statement, without its comments."""
    return load_statement("penstock.store.postgres", name).encode()


async def query(connection: Connection, text: bytes, scope: Mapping[str, Any] | None = None) -> list[Row]:
    """All rows that a statement returns; their types are those of its columns, ids are JobIds."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(text, scope)
    return await cursor.fetchall()


async def execute(connection: Connection, text: bytes, scope: Mapping[str, Any] | None = None) -> int:
    """For a statement that returns nothing: how many rows it changed."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(text, scope)
    return cursor.rowcount


T = TypeVar("T")

_SHARD_NOW = load("shard_now")


class Session:
    """A connection that commits each statement by itself. `test_now` is a test's instant; None is the server's own.

    `keep_events`: whether moves are written to the journal, or only counted.
    """

    def __init__(self, connection: Connection, given: int | None, *, keep_events: bool) -> None:
        self.connection = connection
        self.test_now = given
        self.keep_events = keep_events

    @property
    def scope(self) -> dict[str, object]:
        """The parameters of every statement that moves jobs."""
        return {"now": self.test_now, "keep": self.keep_events}


class PostgresTransaction(Session):
    """A transaction that is open. `now` is its instant in milliseconds, `at` the same as a datetime."""

    def __init__(self, connection: Connection, now: int, *, keep_events: bool) -> None:
        super().__init__(connection, now, keep_events=keep_events)
        self.now = now
        self.at: datetime = from_millis(now)

    @classmethod
    async def begin(cls, connection: Connection, given: int | None, *, keep_events: bool) -> "PostgresTransaction":
        """Inside a transaction of the connection."""
        ((now,),) = await query(connection, _SHARD_NOW, {"now": given})
        return cls(connection, now, keep_events=keep_events)

    def whole(self) -> AbstractAsyncContextManager[object]:
        """A savepoint: if the body raises, what it wrote is undone and the transaction goes on."""
        return self.connection.transaction()


async def in_transaction(
    connection: Connection,
    given: int | None,
    work: Callable[[PostgresTransaction], Awaitable[T]],
    *,
    keep_events: bool = False,
) -> T:
    """What the work returns; all of it is one commit. Work that moves jobs has to be told whether to keep events."""
    async with connection.transaction():
        return await work(await PostgresTransaction.begin(connection, given, keep_events=keep_events))


_STATES = {str(state): state for state in State}


def event_of(job: JobId, row: Row, move: Move, before: State, *, ran: int | None = None) -> Event:
    """The event of a row whose columns begin with anything, type, queue, state, fence, attempt, reason, now, version.

    `ran` is how many milliseconds the attempt took that ended.
    """
    _, type_name, queue, state, fence, attempt, reason, now, version, *_ = row
    seconds = None if ran is None else ran / 1000
    at = _instant(now)
    return Event(job, type_name, queue, move, before, _STATES[state], at, fence, attempt, reason, seconds, version)


@lru_cache(maxsize=16)
def _instant(millis: int) -> datetime:
    """Cached: it is the same for all rows of a statement."""
    return from_millis(millis)
