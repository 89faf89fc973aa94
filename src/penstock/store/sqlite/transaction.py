"""One commit in the making: the instant at which all its moves happen, and the record of what they did."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

import apsw

from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import from_millis
from penstock.store.admission import Admission
from penstock.store.rows import Row
from penstock.store.sqlite.statements import Bulk, load, query

_ADMISSION = load("admission")
_RECORD_COUNTS = Bulk("record_counts")


class SqliteTransaction:
    """What a move is given to work with. `now` is in milliseconds, `at` is the same instant."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self.at: datetime = from_millis(now)
        self._changes: Counter[tuple[str, str, State]] = Counter()
        self._admission: Admission | None = None

    @property
    def admission(self) -> Admission:
        """What the shard takes; read once for all that is committed together."""
        if self._admission is None:
            ((ring, closed),) = query(self.connection, _ADMISSION)
            self._admission = Admission(ring, bool(closed))
        return self._admission

    def record(self, events: Iterable[Event]) -> None:
        """Note what moves have done. Everything kept about events besides the jobs themselves is written from here."""
        moved = Counter((event.queue, event.type, event.before, event.after) for event in events)
        for (queue, type_name, before, after), jobs in moved.items():
            self._changes[queue, type_name, after] += jobs
            if before is not None:
                self._changes[queue, type_name, before] -= jobs

    def record_pruned(self, queue: str, type_name: str, state: State) -> None:
        """Note that an ended job is no longer there; it is no move, and no event."""
        self._changes[queue, type_name, state] -= 1

    def record_retyped(self, queue: str, before: str, after: str) -> None:
        """Note that a running job is of another type now; it is no move, and no event."""
        self._changes[queue, before, State.RUNNING] -= 1
        self._changes[queue, after, State.RUNNING] += 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written within is written entirely, or not at all when it raises; the rest of the commit goes on."""
        with self.connection:
            yield

    def finish(self) -> None:
        """Write the record; the last thing before the commit."""
        rows = [(*key, change) for key, change in self._changes.items() if change]
        _RECORD_COUNTS.execute(self.connection, rows)

    def event(self, job: JobId, row: Row, move: Move, before: State, *, ran: int | None = None) -> Event:
        """The event of a row whose columns begin with id, type, queue, state, fence, attempt and reason.

        `ran` is how many milliseconds the attempt took that ended.
        """
        _, type_name, queue, state, fence, attempt, reason, *_ = row
        seconds = None if ran is None else ran / 1000
        return Event(job, type_name, queue, move, before, State(state), self.at, fence, attempt, reason, seconds)
