"""Entries of the journal as rows: packed when they are written with a commit, unpacked when they are read."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.model.clock import from_millis
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.journal import Entry
from penstock.model.lifecycle import Event, Move, State
from penstock.model.submission import Inserted
from penstock.store.rows import Row

MovedRow = TypeVar("MovedRow", bound=Row)

_encode = msgspec.msgpack.Encoder().encode
_ints = msgspec.msgpack.Decoder(list[int])
_texts = msgspec.msgpack.Decoder(list[str | None])

SPAN = 8
"""The column of a moved row, after those of `moved.sql`, that holds the milliseconds waited or run."""


class EntryKey(NamedTuple):
    """What all jobs of an entry have in common."""

    move: str
    queue: str
    type: str
    before: State | None
    after: State | None


class Draft:
    """An entry that is about to be written. Moves that follow one another with the same key share one."""

    __slots__ = ("attempts", "ids", "jobs", "key", "reasons", "spans", "versions")

    def __init__(self, key: EntryKey) -> None:
        self.key = key
        self.jobs = 0
        self.ids = b""
        self.versions: list[int] = []
        self.attempts: list[int] = []
        self.spans: list[int] = []
        self.reasons: list[str | None] = []

    def add_rows(self, rows: Sequence[Row], *, timed: bool) -> None:
        """Add jobs from the columns of `moved.sql`; `timed` ones have a span besides."""
        self.jobs += len(rows)
        self.ids += b"".join([row[0] for row in rows])
        self.attempts += [row[5] for row in rows]
        self.reasons += [row[6] for row in rows]
        self.versions += [row[7] for row in rows]
        if timed and rows[0][SPAN] is not None:
            self.spans += [row[SPAN] for row in rows]

    def add_new(self, jobs: Sequence[JobId]) -> None:
        """Add jobs that were inserted."""
        self.jobs += len(jobs)
        self.ids += to_packed(jobs)
        self.versions += [1] * len(jobs)
        self.attempts += [0] * len(jobs)

    def add_events(self, events: Sequence[Event]) -> None:
        self.jobs += len(events)
        self.ids += to_packed([event.job for event in events])
        self.versions += [event.version for event in events]
        self.attempts += [event.attempt for event in events]
        self.reasons += [event.reason for event in events]

    def row(self, now: int) -> Row:
        """The columns of `record_entries.sql`, in its order."""
        return (
            now,
            *self.key,
            self.jobs,
            _pack(self.versions),
            _pack(self.attempts),
            _pack(self.spans),
            _encode(self.reasons) if any(self.reasons) else None,
            self.ids or None,
        )


def by_line(rows: Sequence[MovedRow]) -> Iterable[tuple[Row, Sequence[MovedRow]]]:
    """Rows of moved jobs by type, queue and state. Most statements move jobs of one line only."""
    lines = {row[1:4] for row in rows}
    if len(lines) == 1:
        return [(lines.pop(), rows)]
    grouped: dict[Row, list[MovedRow]] = {}
    for row in rows:
        grouped.setdefault(row[1:4], []).append(row)
    return grouped.items()


def new_by_key(inserted: Sequence[Inserted]) -> dict[EntryKey, list[JobId]]:
    grouped: dict[EntryKey, list[JobId]] = {}
    for one in inserted:
        new = one.new
        grouped.setdefault(EntryKey(one.move, new.queue, new.type, None, one.state), []).append(new.id)
    return grouped


def events_by_key(events: Iterable[Event]) -> dict[EntryKey, list[Event]]:
    grouped: dict[EntryKey, list[Event]] = {}
    for event in events:
        key = EntryKey(event.move, event.queue, event.type, event.before, event.after)
        grouped.setdefault(key, []).append(event)
    return grouped


def entry_of(row: Row) -> Entry:
    """An entry from the columns of `read_journal.sql`."""
    number, at, move, queue, type_name, before, after, jobs, versions, attempts, reasons, ids = row
    return Entry(
        number=number,
        at=from_millis(at),
        move=Move(move),
        type=type_name,
        queue=queue,
        before=None if before is None else State(before),
        after=State(after),
        jobs=list(from_packed(ids)),
        versions=unpack(versions, jobs),
        attempts=unpack(attempts, jobs),
        reasons=() if reasons is None else _texts.decode(reasons),
    )


def unpack(packed: Any, jobs: int) -> list[int]:
    """The integers of as many jobs; none where there are none."""
    if packed is None:
        return []
    return [packed] * jobs if isinstance(packed, int) else _ints.decode(packed)


def tally(packed: Any, jobs: int) -> Mapping[int, int]:
    """How many of the jobs have each integer."""
    return {packed: jobs} if isinstance(packed, int) else Counter(unpack(packed, jobs))


def _pack(values: list[int]) -> "int | bytes | None":
    """One integer where all are the same: most jobs of a statement have been through the same moves."""
    if not values:
        return None
    first = values[0]
    return first if values.count(first) == len(values) else _encode(values)
