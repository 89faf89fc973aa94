"""A job to submit, from Python's words to the wire's: durations to seconds, params to JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Required, TypeAlias, TypedDict, cast

import msgspec

from penstock.model.clock import utc
from penstock.model.errors import Invalid, InvalidParams
from penstock.model.retry import Retry, RetryKind
from penstock.model.schedule import Cron, Every, Misfire, Overlap
from penstock.model.text import check_options
from penstock.model.ticks import check
from penstock.model.wire.schedules import OnConflict, ScheduleRequest

Duration: TypeAlias = timedelta | float
"""A `timedelta`, or seconds."""

Content: TypeAlias = Path | str | bytes
"""A file's path (`Path` or `str`), or its bytes."""


class SubmitOptions(TypedDict, total=False):
    """How to submit a job; what is left out comes from its job type.

    `delay` and `scheduled_at` exclude each other. `interval` makes a schedule of it: the job comes again that often.
    `timeout=None` lets an attempt run for ever. `key` makes the submit idempotent: the same key and the same job give
    the same job back, for every caller.
    """

    queue: str | None
    priority: int | None
    delay: Duration | None
    scheduled_at: datetime | None
    interval: Duration | None
    retry: Retry | RetryKind | None
    timeout: Duration | None
    expires_at: datetime | None
    tags: Sequence[str]
    inputs: Mapping[str, Content]
    key: str | None


class JobSpec(SubmitOptions, total=False):
    """One job of a `submit_many`: a type, its params, and any of the options of `submit`."""

    type: Required[str]
    params: object


OPTIONS = frozenset(SubmitOptions.__optional_keys__)
SPEC = frozenset(JobSpec.__optional_keys__ | JobSpec.__required_keys__)


def spec_of(type_name: str, params: object, options: SubmitOptions) -> JobSpec:
    """Invalid names an option that there is not."""
    check_submit(options, OPTIONS)
    return {**options, "type": type_name, "params": params}


def check_submit(given: SubmitOptions | JobSpec, known: frozenset[str] = SPEC) -> None:
    """Raise Invalid for what would be left out without a word: an option that there is not, or an empty key."""
    if not given.keys() <= known:
        check_options("submit", given, known)
    if given.get("key") == "":
        raise Invalid("key: an idempotency key is not empty; leave it out, or pass None, for none of your own")


def body_of(spec: JobSpec, uploads: Mapping[str, str]) -> dict[str, object]:
    """The wire's `SubmitRequest`, holding only what was said. `uploads` are the ids of the inputs, by name."""
    body: dict[str, object] = {"type": spec["type"], "params": params_json(spec["type"], spec.get("params"))}
    if not spec.keys() <= body.keys():
        body |= _options_of(spec)
    if uploads:
        body["inputs"] = uploads
    return body


class Stencil:
    """Writes the bodies of jobs that differ in their params alone and have no inputs: the rest is written once."""

    def __init__(self, type_name: str, options: SubmitOptions) -> None:
        said = msgspec.json.encode({"type": type_name, **_options_of(options)})
        self._head = said[:-1] + b',"params":'

    def body(self, params: bytes) -> msgspec.Raw:
        """The body of one job, from its params as JSON."""
        return msgspec.Raw(self._head + params + b"}")


def _options_of(spec: SubmitOptions) -> dict[str, object]:
    options: dict[str, object] = {
        "idempotency_key": spec.get("key"),
        "queue": spec.get("queue"),
        "priority": spec.get("priority"),
        "delay_seconds": seconds_of(spec.get("delay")),
        "scheduled_at": instant_of("scheduled_at", spec.get("scheduled_at")),
        "interval": seconds_of(spec.get("interval")),
        "retry_policy": spec.get("retry"),
        "expires_at": instant_of("expires_at", spec.get("expires_at")),
        "tags": words_of("tags", spec.get("tags")),
    }
    said = {name: value for name, value in options.items() if value is not None}
    if "timeout" in spec:
        said["timeout_seconds"] = seconds_of(spec["timeout"])
    return said


def params_json(type_name: str, params: object) -> msgspec.Raw:
    """Params as JSON; `Raw` passes as it is. InvalidParams names the value that JSON cannot hold."""
    if isinstance(params, msgspec.Raw):
        return params
    try:
        return msgspec.Raw(msgspec.json.encode({} if params is None else params))
    except (TypeError, ValueError) as error:
        raise InvalidParams(f"params of a {type_name!r} job cannot be written as JSON: {error}") from error


def seconds_of(span: Duration | None) -> float | None:
    """A duration as the wire writes it. Invalid for what JSON has no number for, and would write as null."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if span is not None and not math.isfinite(span):
        raise Invalid(f"{span} is not a duration: give seconds, a timedelta, or None for none")
    return span


def span_of(span: Duration) -> timedelta:
    return span if isinstance(span, timedelta) else timedelta(seconds=span)


def instant_of(name: str, at: datetime | None) -> datetime | None:
    """In UTC; Invalid without a time zone or out of range."""
    return None if at is None else utc(name, at)


def words_of(name: str, words: Iterable[str] | None) -> list[str] | None:
    if isinstance(words, str):
        raise Invalid(f"{name} is a list of words: pass [{words!r}], not {words!r}")
    return list(words) if words else None


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
