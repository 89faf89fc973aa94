"""The SQL of the store: one statement per file in `sql/`, read once."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from psycopg import AsyncConnection

from penstock.model.clock import from_millis
from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.store.postgres import arrays
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
_RECORD_COUNTS = load("record_counts")


class Session:
    """A connection that commits each statement by itself. `test_now` is a test's instant; None is the server's own."""

    def __init__(self, connection: Connection, given: int | None) -> None:
        self.connection = connection
        self.test_now = given


class PostgresTransaction(Session):
    """A transaction that is open. `now` is its instant in milliseconds, `at` the same as a datetime."""

    def __init__(self, connection: Connection, now: int) -> None:
        super().__init__(connection, now)
        self.now = now
        self.at: datetime = from_millis(now)
        self._changes: Counter[tuple[str, str, State | None, State | None]] = Counter()

    @classmethod
    async def begin(cls, connection: Connection, given: int | None) -> "PostgresTransaction":
        """Inside a transaction of the connection."""
        ((now,),) = await query(connection, _SHARD_NOW, {"now": given})
        return cls(connection, now)

    def record(self, events: Iterable[Event]) -> None:
        """Record the events of moves. Everything stored about events besides the jobs is written from here."""
        for event in events:
            self._changes[event.queue, event.type, event.before, event.after] += 1

    def record_pruned(self, queue: str, type_name: str, state: State) -> None:
        """Record that an ended job was pruned; this is no move and no event."""
        self._changes[queue, type_name, state, None] += 1

    def whole(self) -> AbstractAsyncContextManager[object]:
        """A savepoint: if the body raises, what it wrote is undone and the transaction goes on."""
        return self.connection.transaction()

    async def finish(self) -> None:
        """Write the record. Call it last, before the commit."""
        changes = [(*key, jobs) for key, jobs in self._changes.items() if key[2] is not key[3]]
        if changes:
            queues, types, before, after, jobs = zip(*changes, strict=True)
            scope = {
                "queues": arrays.texts(queues),
                "types": arrays.texts(types),
                "before": arrays.texts(before),
                "after": arrays.texts(after),
                "jobs": arrays.bigints(jobs),
            }
            await execute(self.connection, _RECORD_COUNTS, scope)

    def event(self, job: JobId, row: Row, move: Move, before: State) -> Event:
        """The event of a row whose columns begin with id, type, queue, state, fence, attempt and reason."""
        _, type_name, queue, state, fence, attempt, reason, *_ = row
        return Event(job, type_name, queue, move, before, State(state), self.at, fence, attempt, reason)


async def in_transaction(
    connection: Connection, given: int | None, work: Callable[[PostgresTransaction], Awaitable[T]]
) -> T:
    """What the work returns; all of it is one commit."""
    async with connection.transaction():
        tx = await PostgresTransaction.begin(connection, given)
        answer = await work(tx)
        await tx.finish()
        return answer


_STATES = {str(state): state for state in State}


def event_of(job: JobId, row: Row, move: Move, before: State, *, ran: int | None = None) -> Event:
    """The event of a row whose columns begin with anything, type, queue, state, fence, attempt, reason and now.

    `ran` is how many milliseconds the attempt took that ended.
    """
    _, type_name, queue, state, fence, attempt, reason, now, *_ = row
    seconds = None if ran is None else ran / 1000
    return Event(job, type_name, queue, move, before, _STATES[state], _instant(now), fence, attempt, reason, seconds)


@lru_cache(maxsize=16)
def _instant(millis: int) -> datetime:
    """Cached: it is the same for all rows of a statement."""
    return from_millis(millis)
