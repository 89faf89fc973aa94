"""What each move makes of a head, as pure functions: the guard first, None where it does not hold.

The rules are those of `model.lifecycle.MOVES`. Every one that changes the state, or marks a job, raises its version and
leaves an entry for the journal.
"""

from datetime import timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import from_millis, millis
from penstock.model.fences import CLAIMS_MASK, EPOCH_SHIFT
from penstock.model.job import ErrorCode, JobError, Retention, Settlement
from penstock.model.journal import RETYPED
from penstock.model.lifecycle import POISON_LOSSES, SUSPECT_LOSSES, TERMINAL, WAITING, Event, Move, State
from penstock.store.dynamodb.insertions import INLINE_BYTES
from penstock.store.dynamodb.items import Course, Head, note
from penstock.store.dynamodb.keys import new_token
from penstock.store.rows import text_of

CANCEL_REQUESTED = "cancel requested"
NOT_STARTED = "not started before expires_at"

_encode = msgspec.json.Encoder().encode


class Moves(Struct, frozen=True):
    """The moves of one store: whether they leave entries for the journal, and how long ended jobs stay."""

    keep_events: bool
    retention: Retention

    def claim(
        self, head: Head, *, worker: str, now: int, until: int, epoch: int, unticketed: bool = False
    ) -> Head | None:
        """Queued and not expired (and, from the line, without a ticket); fence + 1, attempt + 1, a lease."""
        if head.state is not State.QUEUED or is_expired(head, now) or (unticketed and head.until is not None):
            return None
        course = replace(head.course, attempt=head.course.attempt + 1, started=now, begun=False, progress=None)
        fence = max(head.fence, (epoch << EPOCH_SHIFT) + (head.fence & CLAIMS_MASK)) + 1
        claimed = replace(head, state=State.RUNNING, fence=fence, worker=worker, until=until, course=course)
        return self._moved(claimed, Move.CLAIM, State.QUEUED, now, span=max(0, now - head.due))

    def settle(
        self, head: Head, outcome: Settlement, now: int, *, apart: str | None = None, progress: bytes | None = None
    ) -> Head | None:
        """Running under this fence. A retry of a job marked for cancelling is cancelled.

        `apart` is the sort key of the item that holds the outcome's large values.
        """
        if not holds(head, outcome.fence):
            return None
        marked = outcome.state is State.SCHEDULED and head.course.cancel_requested is not None
        state = State.CANCELLED if marked else outcome.state
        again = state is State.SCHEDULED
        course = replace(
            _outcome(head.course, outcome, apart),
            reason=CANCEL_REQUESTED if marked else outcome.reason,
            completed=None if again else now,
            started=None if again else head.course.started,
            progress=None if again else progress,
            losses=head.course.losses + outcome.loss,
            alone=head.course.alone and outcome.loss,
            alone_in_worker=head.course.alone_in_worker and outcome.loss,
        )
        due = head.due if outcome.retry_in is None else now + millis(outcome.retry_in)
        settled = replace(head, state=state, due=due, until=None, worker=None if again else head.worker, course=course)
        ran = None if again or course.started is None else now - course.started
        return self._moved(settled, Move.SETTLE, State.RUNNING, now, span=ran)

    def release(self, head: Head, fence: int, now: int, *, suspect: bool, delay: timedelta | None) -> Head | None:
        """Running under this fence; the attempt is not counted. One marked for cancelling is cancelled."""
        if not holds(head, fence):
            return None
        alone = head.course.alone or suspect
        if head.course.cancel_requested is not None:
            course = replace(head.course, attempt=head.course.attempt - 1, alone=alone)
            return self._end(head, course, Move.RELEASE, State.CANCELLED, now, CANCEL_REQUESTED)
        waiting = replace(
            head,
            state=State.QUEUED if delay is None else State.SCHEDULED,
            due=head.due if delay is None else now + millis(delay),
            until=None,
            worker=None,
            course=replace(_unstarted(head.course), alone=alone),
        )
        return self._moved(waiting, Move.RELEASE, State.RUNNING, now)

    def reclaim(self, head: Head, now: int, *, begun: bool) -> Head | None:
        """Running, and the claim's lease has passed; fence + 1. A mark decides before poison does."""
        if head.state is not State.RUNNING or head.until is None or head.until > now:
            return None
        begun = begun or head.course.begun
        losses = head.course.losses + begun
        shy = head.course.alone_in_worker or (begun and losses >= SUSPECT_LOSSES)
        poison = begun and head.course.alone_in_worker and losses >= POISON_LOSSES
        lost = replace(head, fence=head.fence + 1)
        course = replace(head.course, attempt=head.course.attempt - 1, losses=losses, alone_in_worker=shy)
        if head.course.cancel_requested is not None:
            return self._end(lost, course, Move.RECLAIM, State.CANCELLED, now, CANCEL_REQUESTED)
        if poison:
            course = replace(course, error=_encode(_poisoned(head)), error_apart=None)
            return self._end(lost, course, Move.RECLAIM, State.FAILED, now, "poison")
        course = replace(_unstarted(head.course), losses=losses, alone_in_worker=shy)
        back = replace(lost, state=State.QUEUED, until=None, worker=None, course=course)
        return self._moved(back, Move.RECLAIM, State.RUNNING, now)

    def cancel(self, head: Head, now: int, *, force: bool) -> Head | None:
        """Waiting jobs end; running ones are marked once, or end with fence + 1 so that their owner writes no more."""
        course = replace(head.course, cancel_requested=head.course.cancel_requested or now)
        if head.state in WAITING:
            return self._end(head, course, Move.CANCEL, State.CANCELLED, now, CANCEL_REQUESTED)
        if head.state is not State.RUNNING:
            return None
        if force:
            fenced = replace(head, fence=head.fence + 1)
            return self._end(fenced, course, Move.CANCEL, State.CANCELLED, now, CANCEL_REQUESTED)
        if head.course.cancel_requested is not None:
            return None
        return self._moved(replace(head, course=course), Move.CANCEL, State.RUNNING, now)

    def expire(self, head: Head, now: int) -> Head | None:
        """Waiting, and its time has passed."""
        if head.state not in WAITING or not is_expired(head, now):
            return None
        return self._end(head, head.course, Move.EXPIRE, State.EXPIRED, now, NOT_STARTED)

    def promote(self, head: Head, now: int, until: int | None = None) -> Head | None:
        """Scheduled, and due. With `until` it gets its ticket in the same write."""
        if head.state is not State.SCHEDULED or head.due > now:
            return None
        queued = replace(head, state=State.QUEUED, until=until)
        return self._moved(queued, Move.DISPATCH, State.SCHEDULED, now)

    def retype(self, head: Head, fence: int, type_name: str, now: int) -> Head | None:
        """Running under this fence. No event, but the history counts it."""
        if not holds(head, fence):
            return None
        retyped = replace(head, type=type_name, token=new_token())
        if not self.keep_events:
            return retyped
        return note(retyped, RETYPED, State.RUNNING, now, reason=head.type)

    def _end(self, head: Head, course: Course, move: Move, state: State, now: int, reason: str) -> Head:
        course = replace(course, completed=now, reason=reason)
        return self._moved(replace(head, state=state, until=None, course=course), move, head.state, now)

    def _moved(self, head: Head, move: Move, before: State, now: int, *, span: int | None = None) -> Head:
        moved = replace(head, version=head.version + 1, token=new_token())
        if moved.state in TERMINAL:
            moved = replace(moved, ttl=-(-(now + millis(self._kept(moved))) // 1000))
        return note(moved, move.value, before, now, span=span) if self.keep_events else moved

    def _kept(self, head: Head) -> timedelta:
        if head.origin.anchor:
            return self.retention.longest
        return self.retention.succeeded if head.state is State.SUCCEEDED else self.retention.failed


def ticket(head: Head, now: int, until: int) -> Head | None:
    """Queued without a ticket, and not expired. No event."""
    if head.state is not State.QUEUED or head.until is not None or is_expired(head, now):
        return None
    return replace(head, until=until, token=new_token())


def expire_ticket(head: Head, now: int | None) -> Head | None:
    """Queued, with a ticket that is overdue; with None, with any. No event."""
    if head.state is not State.QUEUED or head.until is None or (now is not None and head.until > now):
        return None
    return replace(head, until=None, token=new_token())


def fence_off(head: Head, epoch: int, now: int) -> Head | None:
    """Running under a fence of an earlier epoch: its lease ends, and its loss will not be charged. No event."""
    if head.state is not State.RUNNING or head.fence >> EPOCH_SHIFT >= epoch:
        return None
    fence = (epoch << EPOCH_SHIFT) + (head.fence & CLAIMS_MASK)
    return replace(head, fence=fence, until=now, course=replace(head.course, begun=False), token=new_token())


def extend(head: Head, fence: int, until: int, *, begun: bool, progress: bytes | None) -> Head | None:
    """Running under this fence: a lease that is renewed by another than the worker that holds it."""
    if not holds(head, fence):
        return None
    course = replace(head.course, begun=head.course.begun or begun, progress=progress or head.course.progress)
    return replace(head, until=until, course=course, token=new_token())


def holds(head: Head, fence: int) -> bool:
    """Whether a fence is still the one under which the job runs."""
    return head.state is State.RUNNING and head.fence == fence


def event_of(before: Head | None, after: Head, move: Move, at: int) -> Event:
    """What a move did, for the callers that publish it."""
    course = after.course
    ran = None
    if move is Move.SETTLE and course.completed is not None and course.started is not None:
        ran = (course.completed - course.started) / 1000
    return Event(
        after.id,
        after.type,
        after.queue,
        move,
        None if before is None else before.state,
        after.state,
        from_millis(at),
        after.fence,
        course.attempt,
        course.reason,
        ran,
        after.version,
    )


def is_expired(head: Head, now: int) -> bool:
    return head.expires is not None and head.expires <= now


def _unstarted(course: Course) -> Course:
    return replace(
        course, attempt=course.attempt - 1, reason=None, completed=None, started=None, progress=None, begun=False
    )


def _outcome(course: Course, outcome: Settlement, apart: str | None) -> Course:
    """The outcome's values, the large ones by the item that holds them. An error stays until the next."""
    result, error = outcome.result, error_bytes(outcome)
    course = replace(
        course,
        result=None if is_large(result) else result,
        result_apart=apart if is_large(result) else None,
        result_object=text_of(outcome.result_object),
        outputs=text_of(outcome.outputs),
    )
    if error is None:
        return course
    return replace(course, error=None if is_large(error) else error, error_apart=apart if is_large(error) else None)


def error_bytes(outcome: Settlement) -> bytes | None:
    return None if outcome.error is None else _encode(outcome.error)


def is_large(value: bytes | None) -> bool:
    return value is not None and len(value) > INLINE_BYTES


def _poisoned(head: Head) -> JobError:
    return JobError(
        ErrorCode.WORKER_LOST,
        f"worker {head.worker} was lost while it ran this job and no other; {head.course.losses} processes died under "
        "it before",
        attempt=head.course.attempt,
    )
