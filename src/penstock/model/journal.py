"""The journal: what every move did to jobs, as stores keep it and as relays and streams read it; and its history.

A store writes one entry per statement and (queue, type, before, after), in the statement that moves the jobs.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from penstock.model.ids import JobId
from penstock.model.job import Count
from penstock.model.lifecycle import Move, State


class EntryEvent(NamedTuple):
    """One job of an entry. `version` is the job's version after the move: 1, 2, 3 … without gaps."""

    job: JobId
    version: int
    attempt: int
    reason: str | None


class Entry(Struct, frozen=True, gc=False):
    """What one statement did to jobs of one type in one queue. `number` grows along the journal of a shard.

    The events of each job are in order, along the entries and within one. `reasons` is empty where no job has one.
    """

    number: int
    at: datetime
    move: Move
    type: str
    queue: str
    before: State | None
    after: State
    jobs: Sequence[JobId]
    versions: Sequence[int]
    attempts: Sequence[int]
    reasons: Sequence[str | None] = ()

    def events(self, start: int = 0) -> Iterator[EntryEvent]:
        """The events from the given index on."""
        reasons = self.reasons or (None,) * len(self.jobs)
        for row in zip(self.jobs[start:], self.versions[start:], self.attempts[start:], reasons[start:], strict=True):
            yield EntryEvent(*row)


class Position(Struct, frozen=True, order=True, gc=False):
    """A place in a shard's journal: all entries before `number` are behind it, and `index` events of that entry."""

    number: int
    index: int = 0


class JournalPage(Struct, frozen=True):
    """Entries in order. `oldest` is the least number that is still kept, `head` the greatest that was given.

    An empty journal has `oldest = head + 1`. Whatever comes before `oldest` is gone.
    """

    entries: Sequence[Entry]
    oldest: int
    head: int


class HistoryFilter(Struct, frozen=True):
    """Which spans of the history to read; queue and type None do not restrict."""

    since: datetime
    until: datetime
    queue: str | None = None
    type: str | None = None


class HistoryRow(Struct, frozen=True, gc=False):
    """How many jobs one kind of move moved in a span that begins `at` and takes `span`.

    `after` None: pruned, or left for another type; `before` None: new, or come from another type. `bucket` is the
    number of binary digits of the milliseconds waited (claim) or run (settle that ends the job), None for other moves;
    `millis` is their sum.
    """

    at: datetime
    span: timedelta
    queue: str
    type: str
    move: str
    before: State | None
    after: State | None
    bucket: int | None
    jobs: int
    millis: int = 0


PRUNED = "prune"
RETYPED = "retype"
"""The `move` of rows that are no moves: they are counted, and there is no event about them."""


class SpanFold(NamedTuple):
    """Spans of the history of one length become longer ones at this age."""

    fine: timedelta
    coarse: timedelta
    age: timedelta


NEWEST_SPAN = timedelta(seconds=10)
FOLDS = (
    SpanFold(NEWEST_SPAN, timedelta(minutes=1), timedelta(hours=2)),
    SpanFold(timedelta(minutes=1), timedelta(hours=1), timedelta(hours=48)),
)
"""The oldest spans are the longest. Stores fold them as they prune the journal."""


class History(Struct, frozen=True):
    """Rows of spans that touch the filter, oldest first, and the counts right after the last move that rows include.

    `rows` also has every row after `until`, so that counts can be computed back from `counts`.
    """

    rows: Sequence[HistoryRow]
    counts: Sequence[Count]


class ParkedState(StrEnum):
    """`waiting`: due for another attempt, or behind an earlier event of its job. `dead`: given up; may be replayed."""

    WAITING = "waiting"
    DEAD = "dead"


class Parked(Struct, frozen=True, kw_only=True):
    """An event that an endpoint has refused, or that waits behind such an event of the same job.

    `event` is the encoded `JobEvent`. `attempts` counts deliveries that failed. `due_at` None: behind another one.
    """

    job: JobId
    version: int
    event: bytes
    state: ParkedState = ParkedState.WAITING
    attempts: int = 0
    due_at: datetime | None = None
    error: str | None = None


class DeliveryRecord(Struct, frozen=True, kw_only=True):
    """One line of a subscription's delivery log: a failure by itself, or successes in a row as one range.

    `first` and `last` are event ids, `events` how many there are between them, both included.
    """

    at: datetime
    delivered: bool
    first: str
    last: str
    events: int
    attempt: int = 1
    status: int | None = None
    detail: str | None = None
    took: timedelta = timedelta(0)


class RelayState(Struct, frozen=True, kw_only=True):
    """A relay's place in a shard's journal: None before its first write.

    `failures` in a row; at the circuit's opening and as long as it is open, `retry_at` is when to try again.
    """

    position: Position | None = None
    failures: int = 0
    retry_at: datetime | None = None


class RelayWrite(Struct, frozen=True, kw_only=True):
    """What a relay has done: its state, the events to park or to park again, those no longer parked, and its log."""

    state: RelayState
    parked: Sequence[Parked] = ()
    unparked: Sequence[tuple[JobId, int]] = ()
    log: Sequence[DeliveryRecord] = ()


class RelayTotals(Struct, frozen=True, kw_only=True):
    """What `subscriptions show` and the metrics tell about one relay of one shard."""

    state: RelayState
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    failed: int = 0


class EventRetention(Struct, frozen=True):
    """How long entries (and delivery logs), and the history, stay."""

    events: timedelta = timedelta(days=7)
    history: timedelta = timedelta(days=90)
