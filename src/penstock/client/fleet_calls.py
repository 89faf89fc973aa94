"""What the clients ask of a server about fleets: one function per endpoint, each giving a `Call`."""

from typing import Literal, TypeAlias, TypedDict

import msgspec

from penstock.client.calls import Call, path_of
from penstock.model.durations import Span
from penstock.model.errors import Invalid
from penstock.model.fleets import KeepWarm, Policy
from penstock.model.text import check_options
from penstock.model.wire.fleets import FleetChange, FleetItem, FleetList

WorkerCount: TypeAlias = int | Literal["auto"]

_FLEET = msgspec.json.Decoder(FleetItem).decode


class FleetChanges(TypedDict, total=False):
    """What may be changed of a fleet while everything runs. `reset` forgets all earlier changes first."""

    min: int
    max: int
    target_wait: Span | None
    policy: Policy | None
    capacity: int | None
    queues: tuple[str, ...] | None
    keep_warm: tuple[KeepWarm, ...]
    out_after: Span
    in_after: Span | None
    blind_for: Span
    fallback: int
    reset: bool


def fleets() -> Call[tuple[FleetItem, ...]]:
    return Call("GET", "/v1/fleets", lambda raw: msgspec.json.decode(raw, type=FleetList).fleets)


def get(name: str) -> Call[FleetItem]:
    return Call("GET", path_of("fleets", name), _FLEET)


def change(name: str, changes: FleetChanges) -> Call[FleetItem]:
    if not changes:
        raise Invalid(f"fleet {name}: nothing to change; name at least one of its fields")
    check_options("update_fleet", changes, FleetChanges.__optional_keys__)
    return Call("PATCH", path_of("fleets", name), _FLEET, body=msgspec.json.encode(FleetChange(**changes)))


def pause(name: str) -> Call[FleetItem]:
    return Call("POST", path_of("fleets", name, "pause"), _FLEET)


def resume(name: str) -> Call[FleetItem]:
    return Call("POST", path_of("fleets", name, "resume"), _FLEET)


def scale(name: str, count: WorkerCount) -> Call[FleetItem]:
    return Call("POST", path_of("fleets", name, "scale"), _FLEET, body=msgspec.json.encode({"count": count}))
