"""What a move has done, from the row that it gave back."""

from datetime import datetime
from functools import lru_cache

from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import from_millis
from penstock.store.rows import Row

_STATES = {str(state): state for state in State}


def event_of(job: JobId, row: Row, move: Move, before: State) -> Event:
    """The event of a row whose columns begin with anything, type, queue, state, fence, attempt, reason and now."""
    return Event(job, row[1], row[2], move, before, _STATES[row[3]], _instant(row[7]), row[4], row[5], row[6])


@lru_cache(maxsize=16)
def _instant(millis: int) -> datetime:
    """Remembered: it is the same for all rows of a statement."""
    return from_millis(millis)
