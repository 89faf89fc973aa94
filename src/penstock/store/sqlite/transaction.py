"""A transaction: the instant at which all its moves happen, and the record of what they did; and the shard's clock."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import apsw

from penstock.model.clock import Clock, from_millis, millis, seconds
from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import Job, NewJob
from penstock.model.journal import PRUNED, RETYPED
from penstock.model.lifecycle import Event, Move, State
from penstock.model.submission import Inserted, due
from penstock.store import rows
from penstock.store.rows import Admission, Row, optional_millis, retry_of, text_of
from penstock.store.sqlite.entries import Draft, EntryKey, by_line, events_by_key, new_by_key
from penstock.store.sqlite.statements import Bulk, load, query

_ADMISSION = load("admission")
_RECORD_COUNTS = Bulk("record_counts")
_RECORD_ENTRIES = Bulk("record_entries")


class SqliteTransaction:
    """The argument of every move. `now` is in milliseconds, `at` is the same instant.

    With `keep_events` off, moves are counted and not written to the journal.
    """

    def __init__(self, connection: apsw.Connection, now: int, *, keep_events: bool = True) -> None:
        self.connection = connection
        self.now = now
        self.at: datetime = from_millis(now)
        self._keep_events = keep_events
        self._drafts: list[Draft] = []
        self._changes: Counter[tuple[str, str, State]] = Counter()
        self._admission: Admission | None = None

    @property
    def admission(self) -> Admission:
        """What the shard accepts; read once per commit."""
        if self._admission is None:
            ((ring, closed),) = query(self.connection, _ADMISSION)
            self._admission = Admission(ring, bool(closed))
        return self._admission

    def record(self, events: Iterable[Event]) -> None:
        """Note the events of one statement, each of another job.

        Everything stored about events besides the jobs themselves is written from here.
        """
        for key, group in events_by_key(events).items():
            if draft := self._draft(key, len(group)):
                draft.add_events(group)

    def record_rows(self, move: Move, before: State, rows: Sequence[Row], *, timed: bool = False) -> None:
        """As `record`, from the columns of `moved.sql` and, if `timed`, the milliseconds waited or run."""
        for (type_name, queue, after), group in by_line(rows):
            if draft := self._draft(EntryKey(move, queue, type_name, before, after), len(group)):
                draft.add_rows(group, timed=timed)

    def record_new(self, inserted: Sequence[Inserted]) -> None:
        """As `record`, for jobs that were inserted."""
        for key, jobs in new_by_key(inserted).items():
            if draft := self._draft(key, len(jobs)):
                draft.add_new(jobs)

    def record_pruned(self, gone: Mapping[tuple[str, str, State], int]) -> None:
        """Note how many ended jobs of which queue, type and state were removed; this is no move, and no event."""
        for (queue, type_name, state), jobs in gone.items():
            self._record_count(EntryKey(PRUNED, queue, type_name, state, None), jobs)

    def record_retyped(self, left: Mapping[tuple[str, str], int], type_name: str) -> None:
        """Note how many running jobs of which queue and type have this type now; this is no move, and no event."""
        for (queue, before), jobs in left.items():
            self._record_count(EntryKey(RETYPED, queue, before, State.RUNNING, None), jobs)
            self._record_count(EntryKey(RETYPED, queue, type_name, None, State.RUNNING), jobs)

    def _record_count(self, key: EntryKey, jobs: int) -> None:
        if draft := self._draft(key, jobs):
            draft.jobs += jobs

    def _draft(self, key: EntryKey, jobs: int) -> Draft | None:
        """Count jobs that were moved; the entry to add them to, if there is a journal.

        Only the last entry may take more: in an earlier one, a job's event could come before one that it follows.
        """
        if key.after is not None:
            self._changes[key.queue, key.type, key.after] += jobs
        if key.before is not None:
            self._changes[key.queue, key.type, key.before] -= jobs
        if not self._keep_events:
            return None
        if not self._drafts or self._drafts[-1].key != key:
            self._drafts.append(Draft(key))
        return self._drafts[-1]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A savepoint: what is written within is undone when it raises; the rest of the commit goes on."""
        with self.connection:
            yield

    def finish(self) -> None:
        """Write the record; the last thing before the commit."""
        rows = [(*key, change) for key, change in self._changes.items() if change]
        _RECORD_COUNTS.execute(self.connection, rows)
        _RECORD_ENTRIES.execute(self.connection, [draft.row(self.now) for draft in self._drafts])

    def event(self, job: JobId, row: Row, move: Move, before: State, *, ran: int | None = None) -> Event:
        """The event of a row that begins with the columns of `moved.sql`.

        `ran` is how many milliseconds the attempt took that ended.
        """
        _, type_name, queue, state, fence, attempt, reason, version, *_ = row
        seconds = None if ran is None else ran / 1000
        after = State(state)
        return Event(job, type_name, queue, move, before, after, self.at, fence, attempt, reason, seconds, version)


RETRY_OF = 18
"""The column, besides the second one, that holds an id."""


def row_of(new: NewJob, now: int, ticket_for: timedelta) -> Row:
    """The columns of `submit.sql`, in its order."""
    due_at = due(new, now)
    queued = due_at <= now
    return (
        to_bytes(new.id),
        new.type,
        new.queue,
        State.QUEUED if queued else State.SCHEDULED,
        new.priority,
        due_at,
        now,
        optional_millis(new.expires_at),
        now + millis(ticket_for) if queued and new.ticketed else None,
        None if new.timeout is None else millis(new.timeout),
        int(bool(new.params_object or new.inputs)),
        new.key,
        new.fingerprint or None,
        to_bytes(new.retry_of) if new.retry_of else None,
        retry_of(new.retry),
        text_of(new.tags),
        text_of(new.inputs),
        text_of(new.params_object),
        new.params,
        new.schedule,
        optional_millis(new.tick_at),
        None if new.interval is None else millis(new.interval),
        int(new.anchor),
    )


def job_of(row: Row) -> Job:
    """A job from the columns of `jobs_by_id.sql` and `jobs_by_seq.sql`."""
    columns = list(row)
    columns[1], columns[RETRY_OF] = from_bytes(row[1]), optional_id(row[RETRY_OF])
    return rows.job_of(tuple(columns))


def optional_id(raw: bytes | None) -> JobId | None:
    return None if raw is None else from_bytes(raw)


LEAST_STEP = timedelta(milliseconds=500)
"""Smaller differences come from the time between two readings. They are not lost: once they add up, they are a step."""

_MOVES = [load(f"step_{name}") for name in ("leases", "tickets", "retries", "roles", "workers")]

logger = logging.getLogger(__name__)


class ShardClock:
    """Only the writer may call `follow`; `now` may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = self._wall_start()

    def now(self) -> datetime:
        """Shard time: changes by a step only once a commit has moved the deadlines by it."""
        return self._start + seconds(self._clock.monotonic())

    def step(self) -> timedelta:
        """By how much the wall clock was stepped since the last step that was followed."""
        step = self._wall_start() - self._start
        return step if abs(step) >= LEAST_STEP else timedelta(0)

    def follow(self, step: timedelta) -> None:
        """Adopt a step, after the commit that has moved deadlines by it."""
        self._start += step
        logger.warning("the wall clock was stepped by %+.1f s; leases end as if it had not been", step.total_seconds())

    def _wall_start(self) -> datetime:
        """The wall time at which the monotonic clock was 0, by the present wall clock."""
        return self._clock.now() - seconds(self._clock.monotonic())


def move_deadlines(connection: apsw.Connection, step: timedelta) -> None:
    """Shift all that was counted from now: leases, tickets, waits for a retry, roles, and when workers were seen."""
    for text in _MOVES:
        connection.execute(text, {"step": millis(step)})
