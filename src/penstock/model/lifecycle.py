"""A job's life as a table: its states, the moves between them, and the guard each move repeats in its own write."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from penstock.model.ids import JobId


class State(StrEnum):
    """Where a job is. The last four are terminal and never change."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})
WAITING = frozenset({State.SCHEDULED, State.QUEUED})

SUSPECT_LOSSES = 2
"""From this many losses on, a job whose worker is lost runs alone in the next one."""

POISON_LOSSES = 3
"""A job that was running when this many workers or executors died, the last of them with no other job in it, fails."""


class Move(StrEnum):
    """The moves of a job. Everything that changes a job is one of these."""

    SUBMIT = "submit"
    TICK = "tick"
    DISPATCH = "dispatch"
    CLAIM = "claim"
    RENEW = "renew"
    SETTLE = "settle"
    RELEASE = "release"
    RECLAIM = "reclaim"
    CANCEL = "cancel"
    EXPIRE = "expire"


class Rule(Struct, frozen=True):
    """One row of the move table. `before` is empty for a job that does not exist yet."""

    before: frozenset[State]
    after: frozenset[State]
    who: str
    guard: str


MOVES: Mapping[Move, Rule] = {
    Move.SUBMIT: Rule(
        frozenset(),
        frozenset({State.SCHEDULED, State.QUEUED}),
        "API",
        "the idempotency key is absent (else the same job comes back; with another body: refused)",
    ),
    Move.TICK: Rule(
        frozenset(),
        frozenset({State.QUEUED}),
        "any scheduler",
        "the schedule's version and next tick are as planned, and the tick has come by the shard's clock",
    ),
    Move.DISPATCH: Rule(
        WAITING,
        frozenset({State.QUEUED}),
        "scheduler; API for a job due now",
        "due, and no ticket is out or its deadline has passed; the ticket is published afterwards",
    ),
    Move.CLAIM: Rule(
        frozenset({State.QUEUED}),
        frozenset({State.RUNNING}),
        "worker",
        "queued and not expired; fence + 1, attempt + 1, lease",
    ),
    Move.RENEW: Rule(frozenset({State.RUNNING}), frozenset({State.RUNNING}), "owner", "running, fence"),
    Move.SETTLE: Rule(
        frozenset({State.RUNNING}),
        frozenset({State.SUCCEEDED, State.SCHEDULED, State.FAILED, State.CANCELLED}),
        "owner",
        "running, fence; a retry of a job marked for cancelling becomes cancelled",
    ),
    Move.RELEASE: Rule(
        frozenset({State.RUNNING}),
        frozenset({State.QUEUED, State.SCHEDULED, State.CANCELLED}),
        "owner, draining or too old for it",
        "running, fence; the attempt is not counted; cancelled when marked",
    ),
    Move.RECLAIM: Rule(
        frozenset({State.RUNNING}),
        frozenset({State.QUEUED, State.FAILED, State.CANCELLED}),
        "any reaper",
        "running, and the lease has passed by the shard's clock; fence + 1, the attempt is not counted, the loss is if "
        "it had begun",
    ),
    Move.CANCEL: Rule(
        frozenset({State.SCHEDULED, State.QUEUED, State.RUNNING}),
        frozenset({State.CANCELLED, State.RUNNING}),
        "API",
        "waiting: cancelled; running: marked, or with force cancelled and fence + 1",
    ),
    Move.EXPIRE: Rule(WAITING, frozenset({State.EXPIRED}), "any reaper", "waiting, and expires_at has passed"),
}


class Event(Struct, frozen=True, gc=False):
    """What one move did to one job: the value that is counted, watched and published.

    `before` equals `after` where a move changed the job but not its state: a mark, a ticket. `ran_seconds` is how long
    the attempt took that a settle ended; None where the shard no longer knows. `version` is the job's after the move.
    """

    job: JobId
    type: str
    queue: str
    move: Move
    before: State | None
    after: State
    at: datetime
    fence: int
    attempt: int
    reason: str | None = None
    ran_seconds: float | None = None
    version: int = 1
