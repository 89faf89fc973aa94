"""Rows as SQLite keeps them: ids are 16 bytes."""

from datetime import timedelta

from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import State
from penstock.model.submission import due
from penstock.model.timing import millis
from penstock.store import rows
from penstock.store.rows import Row, optional_millis, retry_of, text_of

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
