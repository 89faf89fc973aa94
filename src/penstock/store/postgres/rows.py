"""What a move has done, from the row that it gave back."""

from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import from_millis
from penstock.store.rows import Row


def event_of(job: JobId, row: Row, move: Move, before: State) -> Event:
    """The event of a row whose columns begin with anything, type, queue, state, fence, attempt, reason and now."""
    _, type_name, queue, state, fence, attempt, reason, now, *_ = row
    return Event(job, type_name, queue, move, before, State(state), from_millis(now), fence, attempt, reason)
