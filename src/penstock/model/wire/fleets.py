"""The bodies of requests and answers about fleets, and the record that an autoscaler keeps of each."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from penstock.model.clock import Instant
from penstock.model.durations import Span, span_seconds
from penstock.model.fleet_readings import FleetReading, Runs, Unknown
from penstock.model.fleets import MOST_WORKERS, Count, Fleet, KeepWarm, Policy
from penstock.model.names import Name

HIDDEN = "***"

DECISIONS_KEPT = 50
"""How many decisions of a fleet are recorded."""

RECORDED = tuple(name for name in FleetReading.__struct_fields__ if name not in {"at", "due_soon", "lost"})
"""The measurements of a reading that are recorded as they are."""


class Look(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reading of a fleet, as it is recorded. What could not be measured is left out, and `unknown` says why.

    `due_soon`: how many jobs are due within the next minute or so.
    """

    backlog: int | None = None
    running: int | None = None
    due_soon: int | None = None
    oldest_wait_seconds: float | None = None
    arrival_rate: float | None = None
    service_seconds: float | None = None
    startup_seconds: float | None = None
    capacity: int | None = None
    starting: int | None = None
    idle: int | None = None
    busy: int | None = None
    draining: int | None = None
    lost: int | None = None
    unknown: dict[str, str] = {}


class FleetDecision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about a fleet, with its reason: `desired` workers are aimed at, `start` or `stop` of them changed now.

    The policy decides how many to start or to stop; what is recorded is how many were started or asked to stop.
    """

    at: Instant
    desired: int
    start: int = 0
    stop: int = 0
    reason: str
    reading: Look


class FleetRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the leading autoscaler records about a fleet. Kept as a notice.

    `latest` is its last decision, even if it changed nothing; `decisions` are those that changed something, newest
    first. `started` and `stopped` count workers, `starts` and `stops` decisions, since the fleet was first seen. `runs`
    is what its workers run, also while it has none. `app` is the app of its workers; `copy_of` the planned fleet that
    it is for that app, where another app has the one of that name.
    """

    by: str
    app: str | None = None
    copy_of: str | None = None
    queues: tuple[str, ...] | None = None
    except_queues: tuple[str, ...] = ()
    latest: FleetDecision
    decisions: tuple[FleetDecision, ...] = ()
    started: int = 0
    stopped: int = 0
    starts: int = 0
    stops: int = 0
    trouble: str | None = None
    runs: Runs | None = None


class FleetItem(Struct, frozen=True, kw_only=True):
    """One fleet: its settings in force, and its workers.

    `queues` null: all that are in none of `except_queues`. `count`: the number of workers set by hand. `latest` is null
    until an autoscaler has observed it; `autoscaler` is null while none runs it. `app` is what its workers import.
    `faults` are settings or orders that cannot be followed; `trouble` is why workers cannot be started now.
    `decisions`, newest first, are given for one fleet, not in lists.
    """

    name: str
    source: str
    fleet: Fleet
    queues: tuple[str, ...] | None
    except_queues: tuple[str, ...] = ()
    paused: bool = False
    count: int | None = None
    desired: int | None = None
    workers: dict[str, int] = {}
    reason: str | None = None
    latest: FleetDecision | None = None
    autoscaler: str | None = None
    app: str | None = None
    trouble: str | None = None
    faults: tuple[str, ...] = ()
    started: int = 0
    stopped: int = 0
    starts: int = 0
    stops: int = 0
    decisions: tuple[FleetDecision, ...] = ()


class FleetList(Struct, frozen=True):
    """Every fleet, by name."""

    fleets: tuple[FleetItem, ...]


class FleetChange(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "target_wait": "target_wait_seconds",
        "out_after": "out_after_seconds",
        "in_after": "in_after_seconds",
        "blind_for": "blind_for_seconds",
    },
):
    """What to change of a fleet; what is left out stays as it is. `reset` forgets all earlier changes first.

    What its workers are made of (image, command, environment, limits) is not changed here, but where it is declared.
    """

    min: Count | UnsetType = UNSET
    max: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] | UnsetType = UNSET
    target_wait: Span | UnsetType | None = UNSET
    policy: Policy | UnsetType | None = UNSET
    capacity: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    queues: tuple[Name, ...] | UnsetType | None = UNSET
    keep_warm: tuple[KeepWarm, ...] | UnsetType = UNSET
    out_after: Span | UnsetType = UNSET
    in_after: Span | UnsetType | None = UNSET
    blind_for: Span | UnsetType = UNSET
    fallback: Count | UnsetType = UNSET
    reset: bool = False

    def __post_init__(self) -> None:
        for name in ("target_wait", "out_after", "in_after", "blind_for"):
            if (value := getattr(self, name)) is not None and value is not UNSET:
                force_setattr(self, name, span_seconds(f"fleet: {name}", value))


class ScaleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How many workers there should be, by hand; `auto` leaves that to the policy again."""

    count: Count | Literal["auto"]


def look_of(reading: FleetReading) -> Look:
    """A reading as it is recorded. Lost workers that could not be counted are left out without a reason."""
    fields = {name: getattr(reading, name) for name in RECORDED}
    soon = reading.due_soon
    fields["due_soon"] = soon if isinstance(soon, Unknown) else sum(due.jobs for due in soon)
    if isinstance(reading.lost, int):
        fields["lost"] = reading.lost
    unknown = {name: value.unknown for name, value in fields.items() if isinstance(value, Unknown)}
    known: dict[str, Any] = {name: _rounded(value) for name, value in fields.items() if name not in unknown}
    return Look(**known, unknown=unknown)


def workers_of(look: Look) -> dict[str, int]:
    """Workers by state, of the states that could be counted."""
    states = {name: getattr(look, name) for name in ("starting", "idle", "busy", "draining", "lost")}
    return {name: count for name, count in states.items() if count is not None}


def shown(fleet: Fleet) -> Fleet:
    """The fleet as it may be shown: the values of its environment may be secrets."""
    return replace(fleet, environment=_hidden(fleet.environment))


def _hidden(environment: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(environment, HIDDEN)


def _rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
