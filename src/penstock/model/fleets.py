"""Fleets as users declare them: the least and the most workers, their queues, and the scaling policy.

Spans may be given as a timedelta, as seconds or as text (`"5s"`); they are kept and sent in seconds.
"""

from datetime import datetime, time, timedelta
from itertools import pairwise
from typing import Annotated, Final, TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from penstock.model.durations import Span, span_seconds
from penstock.model.errors import Invalid
from penstock.model.names import Name

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST_WORKERS: Final = 10_000

Count = Annotated[int, Meta(ge=0, le=MOST_WORKERS)]


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a depth policy: with more than `above` jobs due, `add` workers."""

    above: Annotated[int, Meta(ge=0)] = 0
    add: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] = 1


class Depth(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="depth",
    rename={"empty_for": "empty_for_seconds", "cooldown": "cooldown_seconds"},
):
    """Scale out by the highest step that the backlog is above, and in when no job was due for a while.

    After each step `cooldown` must pass before the next. The first worker for due jobs starts whatever the steps are.
    """

    steps: tuple[Step, ...] = (Step(),)
    empty_for: Span = 60.0
    cooldown: Span = 60.0

    def __post_init__(self) -> None:
        _settle_spans(self, "empty_for", "cooldown")
        if not self.steps:
            raise Invalid("depth policy: give at least one step, such as Step(above=100, add=1)")
        ordered = sorted(self.steps, key=lambda step: step.above)
        if any(low.above == high.above or low.add > high.add for low, high in pairwise(ordered)):
            raise Invalid("depth policy: each step must be above another depth, and add no fewer than those below it")


class Wait(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="wait",
    rename={"target": "target_seconds"},
):
    """As few workers as let nearly every job start within `target` of being due."""

    target: Span = 5.0

    def __post_init__(self) -> None:
        _settle_spans(self, "target")
        if self.target == 0:
            raise Invalid("wait policy: a target of 0 can never be met; keep workers warm with min, or allow 100ms")


Policy: TypeAlias = Depth | Wait


class KeepWarm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours with at least `workers` workers: from `start` until `end`, local time, on the days when it starts.

    An `end` that is not after `start` is on the next day. Workers are started early enough to be ready at `start`.
    """

    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] = 1
    days: tuple[str, ...] = DAYS
    start: str = "00:00"
    end: str = "00:00"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.days or not set(self.days) <= set(DAYS):
            raise Invalid(f"keep_warm: days are some of {', '.join(DAYS)}, not {', '.join(self.days) or 'none'}")
        _clock_time(self.start)
        _clock_time(self.end)
        _zone(self.timezone)

    def covers(self, at: datetime) -> bool:
        """Whether an instant is in the window."""
        local = at.astimezone(_zone(self.timezone))
        start, end, now = _clock_time(self.start), _clock_time(self.end), local.time()
        if start < end:
            return start <= now < end and self._on(local)
        return (now >= start and self._on(local)) or (now < end and self._on(local - timedelta(days=1)))

    def _on(self, local: datetime) -> bool:
        return DAYS[local.weekday()] in self.days


class Fleet(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={
        "target_wait": "target_wait_seconds",
        "out_after": "out_after_seconds",
        "in_after": "in_after_seconds",
        "blind_for": "blind_for_seconds",
    },
):
    """Workers that are scaled together: `Fleet(max=20, target_wait="5s")`, or with a `policy` of its own.

    `queues` None: those of the job type that declares it. `capacity` None: what its workers report.
    Workers are started after they were needed for `out_after`, and idle workers are kept for `in_after`; None keeps
    them as long as starting them again would take. While the fleet or its queues cannot be observed, nothing changes
    for `blind_for`; from then on there are at least `fallback` workers.
    """

    min: Count = 0
    max: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] = 10
    target_wait: Span | None = None
    policy: Policy | None = None
    capacity: Annotated[int, Meta(ge=1)] | None = None
    queues: tuple[Name, ...] | None = None
    keep_warm: tuple[KeepWarm, ...] = ()
    out_after: Span = 0.0
    in_after: Span | None = None
    blind_for: Span = 60.0
    fallback: Count = 0
    image: str | None = None
    command: tuple[str, ...] | None = None
    environment: dict[str, str] = {}
    cpus: Annotated[float, Meta(gt=0)] | None = None
    memory_mib: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        _settle_spans(self, "target_wait", "out_after", "in_after", "blind_for")
        if isinstance(self.keep_warm, KeepWarm):
            raise Invalid("fleet: keep_warm is a sequence of windows; write keep_warm=(KeepWarm(…),)")
        if self.target_wait is not None and self.policy is not None:
            raise Invalid("fleet: give target_wait or a policy, not both; target_wait='5s' is policy=Wait(target='5s')")
        if self.target_wait is not None:
            Wait(target=self.target_wait)
        if self.min < 0 or self.max < 1:
            raise Invalid(f"fleet: min is at least 0 and max at least 1, not {self.min} and {self.max}")
        _within_max("min", self.min, self.max)
        _within_max("fallback", self.fallback, self.max)
        for window in self.keep_warm:
            _within_max("keep_warm workers", window.workers, self.max)

    @property
    def rule(self) -> Policy:
        """The policy in force."""
        if self.policy is not None:
            return self.policy
        return Wait() if self.target_wait is None else Wait(target=self.target_wait)


def _settle_spans(struct: Struct, *names: str) -> None:
    kind = type(struct).__name__.lower()
    for name in names:
        if (value := getattr(struct, name)) is not None:
            force_setattr(struct, name, span_seconds(f"{kind}: {name}", value))


def _within_max(name: str, count: int, most: int) -> None:
    if count > most:
        raise Invalid(f"fleet: {name} ({count}) is above max ({most}); raise max or lower {name}")


def _clock_time(text: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise Invalid(f"keep_warm: {text!r} is not a time of day; write it as 08:00") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid(f"keep_warm: {name!r} is not a time zone; write it as Europe/Berlin") from None
