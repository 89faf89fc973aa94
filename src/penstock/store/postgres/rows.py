"""What a move has done, from the row that it gave back."""

from datetime import datetime
from functools import lru_cache

from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import from_millis
from penstock.store.rows import Row

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
    """Remembered: it is the same for all rows of a statement."""
    return from_millis(millis)
