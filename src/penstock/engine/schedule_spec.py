"""The schedule that a request describes, and the job of one tick of a schedule. Pure."""

from datetime import datetime

from msgspec import UNSET
from msgspec.structs import asdict, replace

from penstock.engine.job_spec import retry_asked
from penstock.model import ticks
from penstock.model.clock import seconds
from penstock.model.errors import Invalid, InvalidParams
from penstock.model.ids import ShardId
from penstock.model.job import NewJob
from penstock.model.schedule import Cron, Every, Schedule
from penstock.model.wire.schedules import ScheduleBody, ScheduleChange, WhenBody, schedule_body
from penstock.model.workers import JobType

RESERVED = frozenset({"preview"})
"""Names that a path of the API has already."""


def new_schedule(name: str, body: ScheduleBody, now: datetime) -> Schedule:
    """The schedule that was asked for, its first tick the first after `now`. Invalid names the field that is wrong."""
    if name in RESERVED:
        raise Invalid(f"name: {name!r} is a word of the API; choose another")
    when = when_of(body)
    return Schedule(
        name=name,
        when=when,
        type=body.type,
        params=_params(body),
        queue=body.queue,
        priority=body.priority,
        retry=None if body.retry_policy is None else retry_asked(body.retry_policy),
        timeout=None if body.timeout_seconds is None else seconds(body.timeout_seconds),
        tags=body.tags,
        start_at=body.start_at,
        end_at=body.end_at,
        jitter=seconds(body.jitter_seconds),
        misfire=body.misfire,
        misfire_cap=body.misfire_cap,
        misfire_grace=seconds(body.misfire_grace_seconds),
        overlap=body.overlap,
        paused=body.paused is True,
        next_tick_at=ticks.first_tick(when, now, start_at=body.start_at, end_at=body.end_at),
        created_at=now,
        updated_at=now,
    )


def replaced(old: Schedule, new: Schedule) -> Schedule:
    """The new schedule as the successor of the old one.

    It keeps the next tick unless its times have changed; then its next tick is the first from now on. A pending tick
    stays: its job is still to be made.
    """
    same_times = (old.when, old.start_at, old.end_at) == (new.when, new.start_at, new.end_at)
    return replace(
        new,
        version=old.version + 1,
        created_at=old.created_at,
        last_tick_at=old.last_tick_at,
        pending_tick_at=old.pending_tick_at,
        next_tick_at=old.next_tick_at if same_times else new.next_tick_at,
        deployed_at=new.deployed_at or old.deployed_at,
    )


def same_intention(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules ask for the same, apart from their next ticks and from the code that declared them."""
    made = replaced(one, other)
    return replace(made, version=one.version, updated_at=one.updated_at, deployed_at=one.deployed_at) == one


def is_outdated(new: Schedule, old: Schedule) -> bool:
    """Whether a schedule is declared by code that is older than what declared it last."""
    return new.deployed_at is not None and old.deployed_at is not None and new.deployed_at < old.deployed_at


def changed_body(schedule: Schedule, change: ScheduleChange) -> ScheduleBody:
    """The body of a schedule with the fields of the change in place of its own."""
    given = {name: value for name, value in asdict(change).items() if value is not UNSET}
    if given.get("cron") is not None:
        given = {"interval": None, "after_completion": False, **given}
    if given.get("interval") is not None:
        given = {"cron": None, "timezone": None, **given}
    return replace(schedule_body(schedule), **given)


def when_of(body: WhenBody) -> Every | Cron:
    """When the schedule ticks; Invalid if the fields contradict each other."""
    when = _when(body)
    ticks.check(when, body.start_at, body.end_at)
    return when


def tick_job(schedule: Schedule, declared: JobType, at: datetime, shard: ShardId) -> NewJob:
    """The job of one tick. Its id is derived from schedule and tick, so that there is never a second one."""
    timeout = None if declared.timeout_seconds is None else seconds(declared.timeout_seconds)
    return NewJob(
        id=ticks.tick_job_id(schedule.name, schedule.created_at, at, shard),
        type=declared.name,
        queue=schedule.queue or declared.queue,
        priority=declared.priority if schedule.priority is None else schedule.priority,
        params=schedule.params,
        retry=schedule.retry or declared.retry,
        timeout=schedule.timeout or timeout,
        tags=schedule.tags,
        schedule=schedule.name,
        tick_at=at,
        interval=schedule.when.span if isinstance(schedule.when, Every) else None,
    )


def _when(body: WhenBody) -> Every | Cron:
    match body.interval, body.cron:
        case None, None:
            raise Invalid("interval: give an interval in seconds, or a cron expression")
        case span, None if span is not None:
            if body.timezone is not None:
                raise Invalid("timezone: goes with cron; an interval is the same in every time zone")
            return Every(seconds(span), body.after_completion)
        case None, expression if expression is not None:
            if body.after_completion:
                raise Invalid("after_completion: goes with interval; a cron expression names fixed times")
            return Cron(expression, body.timezone or "UTC")
        case _:
            raise Invalid("interval: give either interval or cron, not both")


def _params(body: ScheduleBody) -> bytes:
    params = bytes(body.params)
    if params.lstrip()[:1] != b"{":
        raise InvalidParams("params: expected a JSON object of named parameters")
    return params
