"""The bodies of HTTP requests and answers about schedules. Durations are `…_seconds`, and so is `interval`."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from msgspec.structs import asdict

from penstock.model.clock import Instant, check_instants
from penstock.model.ids import JobId
from penstock.model.job import Priority
from penstock.model.retry import Retry, RetryKind
from penstock.model.schedule import (
    GRACE,
    MISSED_CAP,
    Cron,
    Decision,
    Due,
    Every,
    Misfire,
    Overlap,
    Schedule,
    TickRecord,
)
from penstock.model.wire.jobs import EMPTY_OBJECT, Interval, Seconds, Tags
from penstock.model.workers import CodeAge, Name, TimeoutSeconds

CronText = Annotated[str, Meta(min_length=1, max_length=255)]
Zone = Annotated[str, Meta(min_length=1, max_length=64)]
MissedCap = Annotated[int, Meta(ge=1, le=10_000)]
Jitter = Annotated[float, Meta(ge=0, le=86_400)]
PreviewCount = Annotated[int, Meta(ge=1, le=1000)]


class OnConflict(StrEnum):
    """What to do when there is a schedule of that name: refuse, leave it as it is, or make it what is said now."""

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"


class WhenBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a schedule ticks: `interval` or `cron`, one of them. `after_completion` goes with the first only.

    An interval is a fixed rate anchored at the epoch; with `after_completion` it counts from the end of the last job.
    """

    interval: Interval | None = None
    after_completion: bool = False
    cron: CronText | None = None
    timezone: Zone | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    jitter_seconds: Jitter = 0.0

    def __post_init__(self) -> None:
        check_instants(self, "start_at", "end_at")


class ScheduleBody(WhenBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule without its name. What is left out about its jobs comes from their type, at each tick anew.

    `paused` left out stays as it is where the schedule exists, so that declaring it again does not resume it.
    """

    type: Name
    params: Raw = field(default_factory=lambda: EMPTY_OBJECT)
    queue: Name | None = None
    priority: Priority | None = None
    retry_policy: Retry | RetryKind | None = None
    timeout_seconds: TimeoutSeconds | None = None
    tags: Tags = ()
    misfire: Misfire = Misfire.RUN_ONCE
    misfire_cap: MissedCap = MISSED_CAP
    misfire_grace_seconds: Seconds = GRACE.total_seconds()
    overlap: Overlap = Overlap.ALLOW
    paused: bool | UnsetType = UNSET


class ScheduleRequest(ScheduleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule to create, or to bring to what is said here.

    `code_age_seconds` is how long ago the code was deployed that declares it: it replaces nothing that newer code has
    declared.
    """

    name: Name
    on_conflict: OnConflict = OnConflict.RAISE
    code_age_seconds: CodeAge | None = None


class ScheduleChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be another; what is left out stays. Naming `cron` takes the interval back, and the reverse."""

    interval: Interval | UnsetType | None = UNSET
    after_completion: bool | UnsetType = UNSET
    cron: CronText | UnsetType | None = UNSET
    timezone: Zone | UnsetType | None = UNSET
    start_at: Instant | UnsetType | None = UNSET
    end_at: Instant | UnsetType | None = UNSET
    jitter_seconds: Jitter | UnsetType = UNSET
    type: Name | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    queue: Name | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    retry_policy: Retry | RetryKind | UnsetType | None = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType | None = UNSET
    tags: Tags | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    misfire_cap: MissedCap | UnsetType = UNSET
    misfire_grace_seconds: Seconds | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    paused: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_instants(self, "start_at", "end_at")


class ScheduleItem(Struct, frozen=True, kw_only=True):
    """A schedule as everyone sees it. `next_tick_at` is null when there is none to come, or none before a job ends."""

    name: str
    type: str
    params: Any
    interval: float | None
    after_completion: bool
    cron: str | None
    timezone: str | None
    start_at: Instant | None
    end_at: Instant | None
    jitter_seconds: float
    queue: str | None
    priority: int | None
    retry_policy: Retry | None
    timeout_seconds: float | None
    tags: tuple[str, ...]
    misfire: Misfire
    misfire_cap: int
    misfire_grace_seconds: float
    overlap: Overlap
    paused: bool
    version: int
    next_tick_at: Instant | None
    last_tick_at: Instant | None
    pending_tick_at: Instant | None
    created_at: Instant
    updated_at: Instant


class SchedulePage(Struct, frozen=True):
    """A page of schedules, by name; `cursor` gets the next one, null at the end."""

    schedules: tuple[ScheduleItem, ...]
    cursor: str | None


class TickItem(Struct, frozen=True):
    """What became of one tick: a job, or the reason why not."""

    at: Instant
    job: JobId | None
    skipped: str | None


class TickPage(Struct, frozen=True):
    """A page of a schedule's history, newest first; `cursor` gets the next one, null at the end."""

    ticks: tuple[TickItem, ...]
    cursor: str | None


class PreviewRequest(WhenBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule that need not exist, and how many of its next ticks to tell."""

    count: PreviewCount = 10


class PreviewResponse(Struct, frozen=True):
    """The next ticks, earliest first, without jitter; fewer than asked for where the schedule ends."""

    ticks: tuple[Instant, ...]


class BackfillRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ticks from one instant to another, both included, that were missed or lie before the schedule was made."""

    from_at: Instant = field(name="from")
    to_at: Instant = field(name="to")

    def __post_init__(self) -> None:
        check_instants(self, "from_at", "to_at")


class BackfillResponse(Struct, frozen=True):
    """The ticks that got a job now, earliest first; those that had a job or a record are not among them."""

    ticks: tuple[TickItem, ...]


# -- between scheduler and engine


class DueRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What falls due within the slot. With `seen` the answer waits for a change since then, at most `wait_seconds`."""

    slot_seconds: Annotated[float, Meta(ge=0, le=86_400)]
    limit: Annotated[int, Meta(ge=1, le=10_000)]
    wait_seconds: Seconds = 0.0
    seen: Annotated[str, Meta(max_length=128)] | None = None


class Agenda(Struct, frozen=True):
    """What a shard's schedules ask for, as one reading of them found it.

    `now` is the shard's clock, `until` how far ahead was read, `next_tick_at` the earliest tick of all; `more` is true
    when `due` was cut at its limit.
    `seen` names this state of the schedules: shown with the next request, it answers once there is another.
    `verdicts_max` is the most verdicts that one decision may hold; null: as many as the scheduler likes.
    """

    now: Instant
    until: Instant
    due: tuple[Due, ...]
    next_tick_at: Instant | None
    seen: str
    more: bool = False
    verdicts_max: int | None = None


class TickRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a scheduler decided."""

    decisions: tuple[Decision, ...]


class TickResponse(Struct, frozen=True):
    """For each decision, in order: true when it was applied, false when another scheduler had decided before."""

    applied: tuple[bool, ...]


def schedule_item(schedule: Schedule) -> ScheduleItem:
    """A schedule as the API shows it: its definition and its state."""
    return ScheduleItem(
        **asdict(schedule_body(schedule)),
        name=schedule.name,
        version=schedule.version,
        next_tick_at=schedule.next_tick_at,
        last_tick_at=schedule.last_tick_at,
        pending_tick_at=schedule.pending_tick_at,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
    )


def schedule_body(schedule: Schedule) -> ScheduleBody:
    """The request body that would create this schedule."""
    when = schedule.when
    return ScheduleBody(
        interval=when.span.total_seconds() if isinstance(when, Every) else None,
        after_completion=isinstance(when, Every) and when.after_completion,
        cron=when.expression if isinstance(when, Cron) else None,
        timezone=when.timezone if isinstance(when, Cron) else None,
        start_at=schedule.start_at,
        end_at=schedule.end_at,
        jitter_seconds=schedule.jitter.total_seconds(),
        type=schedule.type,
        params=Raw(schedule.params),
        queue=schedule.queue,
        priority=schedule.priority,
        retry_policy=schedule.retry,
        timeout_seconds=None if schedule.timeout is None else schedule.timeout.total_seconds(),
        tags=schedule.tags,
        misfire=schedule.misfire,
        misfire_cap=schedule.misfire_cap,
        misfire_grace_seconds=schedule.misfire_grace.total_seconds(),
        overlap=schedule.overlap,
        paused=schedule.paused,
    )


def tick_item(record: TickRecord) -> TickItem:
    return TickItem(record.at, record.job, record.skipped)
