"""The one thread that writes. Calls that arrive during a commit are committed together next: group commit.

A caller's future is resolved only after the commit that carries its call is durable.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import apsw

from penstock.model.clock import to_millis
from penstock.model.errors import StoreUnavailable
from penstock.store.sqlite.connection import OUTAGES, open_writer, refused, unavailable
from penstock.store.sqlite.transaction import ShardClock, SqliteTransaction, move_deadlines

BATCH_CALLS = 512
BATCH_ITEMS = 4_096
CHECKPOINT_PAGES = 4_096

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Move = Callable[[SqliteTransaction, Sequence[Item]], list[Answer]]
NewTransaction = Callable[[], SqliteTransaction]
Fill = Callable[[NewTransaction, list["WriterCall"]], None]

logger = logging.getLogger(__name__)


class WriterCall:
    """One call: a move over some items, and its answers or its error."""

    __slots__ = ("answers", "error", "future", "items", "move")

    def __init__(self, move: Move[Any, Any], items: Sequence[Any], future: "asyncio.Future[Any]") -> None:
        self.move = move
        self.items = items
        self.future = future
        self.answers: list[Any] = []
        self.error: BaseException | None = None

    def deliver(self) -> None:
        """Resolve the future, in the caller's event loop. A cancelled caller is ignored."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.answers)
        else:
            self.future.set_exception(self.error)


class Writer:
    """Runs the moves of all callers: each call entirely or not at all, many calls in one commit."""

    def __init__(self, path: Path, connection: apsw.Connection, clock: ShardClock, *, keep_events: bool = True) -> None:
        self.commits = 0
        self.doubted = True
        """Whether the disk may be full: at the start, and after it has refused a write since the last probe."""
        self._path = path
        self._connection: apsw.Connection | None = self._watch(connection)
        self._clock = clock
        self.keep_events = keep_events
        self._calls: SimpleQueue[WriterCall | None] = SimpleQueue()
        self._closed = False
        self._wal_pages = 0
        self._thread = Thread(target=self._serve, name=f"penstock-writer-{path.name}", daemon=True)
        self._thread.start()

    async def each(self, move: Move[Item, Answer], items: Sequence[Item]) -> list[Answer]:
        """Move the items; one answer each, in order. Concurrent calls of one move are run as one."""
        if self._closed:
            raise StoreUnavailable(f"the store {self._path} is closed")
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._calls.put(WriterCall(move, items, future))
        return await future

    async def run(self, work: Callable[[SqliteTransaction], Answer]) -> Answer:
        """Do one piece of work by itself."""
        answers: list[Answer] = await self.each(_work, [work])
        return answers[0]

    async def close(self) -> None:
        """Finish accepted calls, then close the connection."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)
            await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        while calls := self._take():
            self._write(calls)
            _answer(calls)
            self._checkpoint()
        self._drop_connection()

    def _take(self) -> list[WriterCall]:
        """Wait for a call, then take all queued ones, up to a bound; none when closing."""
        calls: list[WriterCall] = []
        items = 0
        call = self._calls.get()
        while call is not None:
            calls.append(call)
            items += len(call.items)
            if len(calls) >= BATCH_CALLS or items >= BATCH_ITEMS:
                return calls
            try:
                call = self._calls.get_nowait()
            except Empty:
                return calls
        if calls:
            self._calls.put(None)
        return calls

    def _write(self, calls: list[WriterCall]) -> None:
        """Commit all calls; if one is invalid, all but that one. In an outage none is done, and all fail."""
        try:
            self._commit_all(calls)
        except Exception as error:  # noqa: BLE001 - the thread outlives it, and every caller gets an answer
            logger.warning("%s: %d calls refused: %s", self._path, len(calls), error)
            for call in calls:
                call.error = unavailable(self._path, error)
            self.doubted = True
            self._drop_connection()

    def _commit_all(self, calls: list[WriterCall]) -> None:
        try:
            self._commit(calls, _run_batch)
        except OUTAGES:
            raise
        except Exception:  # noqa: BLE001 - the fault of one call, and it must not reach the others
            self._commit(calls, _one_by_one)

    def _commit(self, calls: list[WriterCall], fill: Fill) -> None:
        step = self._clock.step()
        now = to_millis(self._clock.now() + step)
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if step:
                move_deadlines(connection, step)
            fill(partial(SqliteTransaction, connection, now, keep_events=self.keep_events), calls)
            connection.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.commits += 1
        if step:
            self._clock.follow(step)

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._watch(open_writer(self._path))
        return self._connection

    def _watch(self, connection: apsw.Connection) -> apsw.Connection:
        """Install a hook in place of SQLite's own checkpoints, which would delay a caller."""
        connection.set_wal_hook(self._note_wal)
        return connection

    def _drop_connection(self) -> None:
        """Reopen after an outage: only the file says what was committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close(True)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Checkpoint between commits, after the answers. Passive: it waits for no reader, and no reader for it."""
        if self._wal_pages >= CHECKPOINT_PAGES and self._connection is not None:
            self._wal_pages = 0
            with contextlib.suppress(*OUTAGES):
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def _run_batch(new: NewTransaction, calls: list[WriterCall]) -> None:
    """Run the calls of one move as one: concurrent calls have no defined order."""
    tx = new()
    by_move: dict[Move[Any, Any], list[WriterCall]] = {}
    for call in calls:
        by_move.setdefault(call.move, []).append(call)
    for move, group in by_move.items():
        _run(tx, move, group)
    tx.finish()


def _one_by_one(new: NewTransaction, calls: list[WriterCall]) -> None:
    for call in calls:
        tx = new()
        tx.connection.execute("SAVEPOINT one")
        try:
            _run(tx, call.move, [call])
            tx.finish()
        except OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's, and is raised there
            call.error = refused(error)
            tx.connection.execute("ROLLBACK TO one")
        tx.connection.execute("RELEASE one")


def _run(tx: SqliteTransaction, move: Move[Any, Any], calls: list[WriterCall]) -> None:
    answers = iter(move(tx, [item for call in calls for item in call.items]))
    for call in calls:
        call.answers = [next(answers) for _ in call.items]


def _work(tx: SqliteTransaction, works: Sequence[Callable[[SqliteTransaction], Any]]) -> list[Any]:
    return [work(tx) for work in works]


def _answer(calls: Iterable[WriterCall]) -> None:
    """Deliver answers, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriterCall]] = {}
    for call in calls:
        by_loop.setdefault(call.future.get_loop(), []).append(call)
    for loop, answered in by_loop.items():
        # A closed loop has no callers left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, answered)


def _deliver(calls: list[WriterCall]) -> None:
    for call in calls:
        call.deliver()
