"""One commit in the making: the instant at which all its moves happen, and the record of what they did."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import apsw

from penstock.model.ids import from_bytes
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import from_millis
from penstock.store.sqlite.rows import Row
from penstock.store.sqlite.statements import Bulk

_RECORD_COUNTS = Bulk("record_counts")


class Transaction:
    """What a move is given to work with. `now` is in milliseconds, `at` is the same instant."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self.at: datetime = from_millis(now)
        self._changes: Counter[tuple[str, str, str]] = Counter()

    def record(self, events: Iterable[Event]) -> None:
        """Note what moves have done. Everything kept about events besides the jobs themselves is written from here."""
        for event in events:
            if event.before is not event.after:
                self._changes[event.queue, event.type, event.after.value] += 1
                if event.before is not None:
                    self._changes[event.queue, event.type, event.before.value] -= 1

    def record_pruned(self, queue: str, type_name: str, state: State) -> None:
        """Note that an ended job is no longer there; it is no move, and no event."""
        self._changes[queue, type_name, state.value] -= 1

    def finish(self) -> None:
        """Write the record; the last thing before the commit."""
        rows = [(*key, change) for key, change in self._changes.items() if change]
        _RECORD_COUNTS.execute(self.connection, rows)

    def event(self, row: Row, move: Move, before: State | None) -> Event:
        """The event of a row that begins with id, type, queue, state, fence, attempt and reason."""
        raw_id, type_name, queue, state, fence, attempt, reason = row[:7]
        return Event(from_bytes(raw_id), type_name, queue, move, before, State(state), self.at, fence, attempt, reason)
