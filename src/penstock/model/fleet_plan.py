"""The plan of fleets and the queues that each serves, from declarations, settings and operators' overrides. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.errors import Invalid
from penstock.model.fleets import MOST_WORKERS, Fleet
from penstock.model.workers import JobType

DEFAULT = "default"
"""The name of the fleet that serves every queue that no other fleet serves."""


class Source(StrEnum):
    """Where a fleet was first declared."""

    DEFAULT = "default"
    JOB_TYPE = "job type"
    SETTINGS = "settings"
    GONE = "nowhere any more"


class Overrides(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator's changes of a fleet at run time. Kept as a notice.

    `changes` are fields of the fleet that replace declared ones. `paused`: no worker is started or stopped. `count`:
    a fixed number of workers instead of the policy.
    """

    changes: dict[str, Any] = {}
    paused: bool = False
    count: int | None = None


class EffectiveFleet(Struct, frozen=True, kw_only=True):
    """One fleet as it is in force.

    `queues` None: all that are in none of `except_queues`. `faults` describe declarations or overrides that cannot be
    followed. `copy_of` names the planned fleet of which this is another app's copy.
    """

    name: str
    copy_of: str | None = None
    fleet: Fleet
    queues: tuple[str, ...] | None
    except_queues: tuple[str, ...] = ()
    source: Source
    paused: bool = False
    count: int | None = None
    faults: tuple[str, ...] = ()

    def serves(self, queue: str) -> bool:
        return queue not in self.except_queues if self.queues is None else queue in self.queues


def plan(
    default: Fleet,
    tables: Mapping[str, Mapping[str, object]],
    types: Iterable[JobType],
    overrides: Mapping[str, Overrides],
    declared_max: int = MOST_WORKERS,
    copies: Mapping[str, str] | None = None,
) -> dict[str, EffectiveFleet]:
    """Every fleet by name, with the default one. A queue is served by one fleet: the first by name that wants it.

    `copies` maps the names of other apps' copies to the fleet they copy; each has its own overrides. A field is taken
    from the overrides, else from the table of the settings, else from the job type's declaration, which never gets
    more than `declared_max` workers.
    """
    types = sorted(types, key=lambda declared: declared.name)
    declared = {name: _clamped(effective, declared_max) for name, effective in _declared(types).items()}
    known = {DEFAULT: _default(default, types), **declared}
    for name, table in tables.items():
        before = known.get(name) or _effective(name, Fleet(), Source.SETTINGS)
        known[name] = _with_fields(before, table, "penstock.toml")
    settled = _assign_queues(
        {name: _with_overrides(effective, overrides.get(name)) for name, effective in known.items()}
    )
    for name, base in (copies or {}).items():
        if base in settled and name not in settled:
            served = settled[base]
            copy = replace(
                known[base], name=name, copy_of=base, queues=served.queues, except_queues=served.except_queues
            )
            settled[name] = _with_overrides(copy, overrides.get(name))
    return settled


def changed(fleet: Fleet, fields: Mapping[str, object]) -> Fleet:
    """The fleet with these fields, by their names on the wire; Invalid names the field that is wrong."""
    before: dict[str, Any] = msgspec.to_builtins(fleet)
    for one, other in (("policy", "target_wait_seconds"), ("target_wait_seconds", "policy")):
        if fields.get(one) is not None and other not in fields:
            before.pop(other)
    try:
        return msgspec.convert(before | dict(fields), Fleet)
    except msgspec.ValidationError as error:
        raise Invalid(f"fleet: {error}") from None


def _default(fleet: Fleet, types: Iterable[JobType]) -> EffectiveFleet:
    """The default fleet. A job type whose queue is named `default` cannot have a fleet of its own."""
    nameless = [one.name for one in types if one.fleet is not None and one.queue == DEFAULT]
    faults = tuple(
        f"job type {name} declares a fleet, but its queue is named {DEFAULT}: rename it" for name in nameless
    )
    return replace(_effective(DEFAULT, fleet, Source.DEFAULT), faults=faults)


def _declared(types: Iterable[JobType]) -> dict[str, EffectiveFleet]:
    """The fleets that job types declare, named after their queues. Of two for one queue the first by name counts."""
    found: dict[str, EffectiveFleet] = {}
    for one in types:
        if one.fleet is None or one.queue == DEFAULT:
            continue
        if (before := found.get(one.queue)) is None:
            found[one.queue] = _effective(one.queue, one.fleet, Source.JOB_TYPE)
        elif before.fleet != one.fleet:
            fault = f"job type {one.name} declares another fleet for the same queue; that one is passed over"
            found[one.queue] = replace(before, faults=(*before.faults, fault))
    return found


def _clamped(effective: EffectiveFleet, most: int) -> EffectiveFleet:
    """Limit a declared fleet: a declaration comes from a worker, which is trusted with its queue only."""
    fleet = effective.fleet
    if fleet.max <= most:
        return effective
    bounded = replace(
        fleet,
        max=most,
        min=min(fleet.min, most),
        fallback=min(fleet.fallback, most),
        keep_warm=tuple(replace(window, workers=min(window.workers, most)) for window in fleet.keep_warm),
    )
    fault = f"up to {fleet.max} workers are declared; fleet.declared_max allows {most}"
    return replace(effective, fleet=bounded, faults=(*effective.faults, fault))


def _effective(name: str, fleet: Fleet, source: Source) -> EffectiveFleet:
    return EffectiveFleet(name=name, fleet=fleet, queues=None, source=source)


def _with_fields(effective: EffectiveFleet, fields: Mapping[str, object], where: str) -> EffectiveFleet:
    try:
        return replace(effective, fleet=changed(effective.fleet, fields)) if fields else effective
    except Invalid as error:
        return replace(effective, faults=(*effective.faults, f"what was said {where} is passed over: {error.message}"))


def _with_overrides(effective: EffectiveFleet, overrides: Overrides | None) -> EffectiveFleet:
    if overrides is None:
        return effective
    changed_now = _with_fields(effective, overrides.changes, "at run time")
    return replace(changed_now, paused=overrides.paused, count=overrides.count)


def _assign_queues(known: Mapping[str, EffectiveFleet]) -> dict[str, EffectiveFleet]:
    """Give each queue to one fleet; a fault for the others that want it. The default fleet gets the rest."""
    owners: dict[str, str] = {}
    settled: dict[str, EffectiveFleet] = {}
    for name in sorted(set(known) - {DEFAULT}):
        effective = known[name]
        wanted = (name,) if effective.fleet.queues is None else effective.fleet.queues
        taken = {queue: owners[queue] for queue in wanted if queue in owners}
        owners |= dict.fromkeys((queue for queue in wanted if queue not in taken), name)
        faults = tuple(f"queue {queue} is served by fleet {owner} already" for queue, owner in taken.items())
        mine = tuple(queue for queue in dict.fromkeys(wanted) if queue not in taken)
        settled[name] = replace(effective, queues=mine, faults=(*effective.faults, *faults))
    rest = replace(known[DEFAULT], queues=None, except_queues=tuple(sorted(owners)))
    return {DEFAULT: rest, **settled}
