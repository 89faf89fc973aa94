"""A schedule, from Python's words to the wire's: durations to seconds, params to JSON, and only what was said."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict, cast

import msgspec

from penstock.client.submission import Duration, instant_of, params_json, seconds_of, words_of
from penstock.model.errors import Invalid
from penstock.model.retry import Retry, RetryKind
from penstock.model.schedule import Cron, Every, Misfire, Overlap
from penstock.model.schedule_wire import OnConflict, ScheduleRequest
from penstock.model.suggestion import check_options
from penstock.model.ticks import check

MisfireName: TypeAlias = Misfire | Literal["skip", "run_once", "run_all"]
OverlapName: TypeAlias = Overlap | Literal["allow", "skip", "queue_one", "cancel_previous"]
ConflictName: TypeAlias = OnConflict | Literal["raise", "skip", "replace"]


class WhenOptions(TypedDict, total=False):
    """When a schedule ticks: `interval` or `cron`, one of them. `timezone` belongs to `cron`.

    An interval is a fixed rate anchored at the epoch; with `after_completion` it counts from the end of the last job.
    """

    interval: Duration | None
    after_completion: bool
    cron: str | None
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    jitter: Duration | None


class ScheduleOptions(WhenOptions, total=False):
    """All that may be said about a schedule; what is left out about its jobs comes from their type at each tick.

    `misfire` decides about ticks missed by more than `misfire_grace`, at most `misfire_cap` of them; `overlap` about a
    tick whose predecessor's job has not ended.
    """

    queue: str | None
    priority: int | None
    retry: Retry | RetryKind | None
    timeout: Duration | None
    tags: Sequence[str]
    misfire: MisfireName
    misfire_cap: int
    misfire_grace: Duration
    overlap: OverlapName
    paused: bool


class ScheduleChanges(ScheduleOptions, total=False):
    """What `update_schedule` may change. None takes a value back; what is left out stays as it is."""

    type: str
    params: object


SPELT = {
    "jitter": "jitter_seconds",
    "timeout": "timeout_seconds",
    "misfire_grace": "misfire_grace_seconds",
    "retry": "retry_policy",
}
"""How the wire writes what Python says in another word."""


def schedule_body(name: str, type_name: str, params: object, options: ScheduleOptions) -> dict[str, object]:
    """The wire's `ScheduleRequest`, holding only what was said. Invalid names an option that there is not."""
    check_options(f"schedule {name!r}", options, ScheduleOptions.__optional_keys__)
    body = {"name": name, "type": type_name, "params": params_json(type_name, params)}
    return body | _without_nones(options_body(options))


def declared_schedule(name: str, type_name: str, params: object, options: ScheduleOptions) -> ScheduleRequest:
    """The schedule as code declares it; Invalid names what in it can never be."""
    body = schedule_body(name, type_name, params, options) | {"on_conflict": OnConflict.REPLACE}
    try:
        declared = msgspec.json.decode(msgspec.json.encode(body), type=ScheduleRequest)
    except msgspec.ValidationError as error:
        raise Invalid(f"schedule {name!r} cannot be declared: {error}") from None
    try:
        check(_when(declared), declared.start_at, declared.end_at)
    except Invalid as error:
        raise Invalid(f"schedule {name!r} cannot be declared: {error.message}") from None
    return declared


def preview_body(when: WhenOptions, count: int) -> dict[str, object]:
    """The wire's `PreviewRequest`."""
    check_options("preview_of", when, WhenOptions.__optional_keys__)
    return _without_nones(options_body(cast(ScheduleOptions, when))) | {"count": count}


def changes_body(changes: ScheduleChanges) -> dict[str, object]:
    """The wire's `ScheduleChange`: None is said, as null. Invalid names an option that there is not."""
    check_options("update_schedule", changes, ScheduleChanges.__optional_keys__)
    body = options_body(changes)
    if "params" in changes:
        body["params"] = params_json(changes.get("type", "scheduled"), changes["params"])
    return body


def options_body(options: ScheduleOptions) -> dict[str, object]:
    """What was said, as the wire writes it; None too."""
    values: dict[str, object] = {
        **options,
        "interval": seconds_of(options.get("interval")),
        "start_at": instant_of("start_at", options.get("start_at")),
        "end_at": instant_of("end_at", options.get("end_at")),
        "jitter": seconds_of(options.get("jitter")),
        "timeout": seconds_of(options.get("timeout")),
        "misfire_grace": seconds_of(options.get("misfire_grace")),
        "tags": words_of("tags", options.get("tags")) or [],
    }
    return {SPELT.get(name, name): values[name] for name in options}


def _when(declared: ScheduleRequest) -> Every | Cron:
    match declared.interval, declared.cron:
        case float() as interval, None if declared.timezone is None:
            return Every(timedelta(seconds=interval), declared.after_completion)
        case None, str() as expression if not declared.after_completion:
            return Cron(expression, declared.timezone or "UTC")
    raise Invalid("say interval= (with after_completion= or not) or cron= (with timezone= or not), one of them")


def _without_nones(body: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if value is not None}
