"""Schedules: recurring intentions, and the instants (ticks) at which they ask for a job.

Here are the values and their rules; `model.ticks` computes instants, `scheduler.tick_plan` decides about each.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.clock import Instant, check_instants
from penstock.model.ids import JobId
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import Event
from penstock.model.names import Name, Reason, reason_of
from penstock.model.retry import Retry

MISSED_CAP = 100
GRACE = timedelta(seconds=60)


class Misfire(StrEnum):
    """Which ticks missed by more than the grace still run: none, the latest one, or all up to the cap."""

    SKIP = "skip"
    RUN_ONCE = "run_once"
    RUN_ALL = "run_all"


class Overlap(StrEnum):
    """What a tick does while a job of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    CANCEL_PREVIOUS = "cancel_previous"


class Every(Struct, frozen=True, tag="interval"):
    """At a fixed rate, anchored at the epoch; or, `after_completion`, that long after the last job has ended."""

    span: timedelta
    after_completion: bool = False


class Cron(Struct, frozen=True, tag="cron"):
    """When a cron expression says so, in a time zone: 5 fields, 6 with seconds first, or `@daily` and its like."""

    expression: str
    timezone: str = "UTC"


class Schedule(Struct, frozen=True, kw_only=True):
    """The durable row of one schedule.

    `next_tick_at` is the earliest tick that has become neither a job nor a skip; None when there is none to come
    (ended, or waiting for a completion). `pending_tick_at` is a tick of `queue_one` that waits for the job before it.
    `version` grows with each change of the intention itself: a plan made for another version is refused. `deployed_at`
    is when the code was deployed that declared it last; None if none has.
    """

    name: str
    when: Every | Cron
    type: str
    params: bytes = b"{}"
    queue: str | None = None
    priority: int | None = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta(0)
    misfire: Misfire = Misfire.RUN_ONCE
    misfire_cap: Annotated[int, Meta(ge=1, le=10_000)] = MISSED_CAP
    misfire_grace: timedelta = GRACE
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    version: int = 1
    next_tick_at: datetime | None = None
    pending_tick_at: datetime | None = None
    last_tick_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    deployed_at: datetime | None = None


class Due(Struct, frozen=True):
    """A schedule that has something to decide, with the jobs of its earlier ticks that have not ended.

    `completed_at` is when its last job ended; None if none has.
    """

    schedule: Schedule
    active: tuple[JobId, ...] = ()
    completed_at: datetime | None = None


class Verdict(Struct, frozen=True, omit_defaults=True):
    """What a tick should become: a job, or (`skipped`) the reason why not."""

    at: Instant
    skipped: Reason | None = None

    def __post_init__(self) -> None:
        check_instants(self, "at")


class Decision(Struct, frozen=True, kw_only=True):
    """What a scheduler decides about one schedule, from one reading of it. The engine makes the jobs.

    Applied only while version, next tick and pending tick are still what was read; so of many schedulers one wins.
    Nothing is decided about a paused schedule, except `by_hand`: an operator asked for these ticks.
    """

    name: Name
    version: int
    expected_tick_at: Instant | None
    expected_pending_at: Instant | None = None
    next_tick_at: Instant | None
    pending_tick_at: Instant | None = None
    verdicts: tuple[Verdict, ...] = ()
    cancel: tuple[JobId, ...] = ()
    by_hand: bool = False

    def __post_init__(self) -> None:
        check_instants(self, "expected_tick_at", "expected_pending_at", "next_tick_at", "pending_tick_at")


class TickRecord(Struct, frozen=True, omit_defaults=True):
    """What became of one tick: a job, or the reason why not. Exactly one of the two."""

    at: datetime
    job: JobId | None = None
    skipped: str | None = None


class TickMove(Struct, frozen=True, kw_only=True):
    """A decision with its jobs: what a store applies in one write. `jobs` has one for each record that names a job."""

    decision: Decision
    records: tuple[TickRecord, ...] = ()
    jobs: tuple[NewJob, ...] = ()

    @property
    def ousted(self) -> list[JobId]:
        """Jobs of earlier ticks that are cancelled for those of this one; none where it has no job.

        Never the job of this tick itself, in case it is decided twice.
        """
        own = {record.job for record in self.records}
        return [job for job in self.decision.cancel if job not in own] if self.jobs else []


def without_jobs(move: TickMove, reason: str) -> TickMove:
    """The move with each of its ticks skipped: applied instead when its jobs cannot be stored."""
    skip = reason_of(reason)
    records = [record if record.job is None else TickRecord(record.at, skipped=skip) for record in move.records]
    return TickMove(decision=move.decision, records=tuple(records))


class Ticked(Struct, frozen=True):
    """The result of a TickMove: applied, with the events of its jobs and of the cancelled ones, or stale."""

    applied: bool
    jobs: Sequence[Job] = ()
    events: Sequence[Event] = ()
    yielded: Sequence[Event] = ()
