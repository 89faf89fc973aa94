"""Which fleets there are, and which queues each serves: from what is declared, configured and ordered. Pure."""

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
"""The name of the fleet that serves every queue which no other one does."""


class Source(StrEnum):
    """Where a fleet was first spoken of."""

    DEFAULT = "default"
    JOB_TYPE = "job type"
    SETTINGS = "settings"
    GONE = "nowhere any more"


class Overrides(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What operators want of a fleet while everything runs. Kept as a notice.

    `changes` are fields of the fleet, laid over what is declared. `paused`: no worker is started or stopped. `count`:
    so many workers, whatever its policy says.
    """

    changes: dict[str, Any] = {}
    paused: bool = False
    count: int | None = None


class EffectiveFleet(Struct, frozen=True, kw_only=True):
    """One fleet as it is in force.

    `queues` None: all that are in none of `except_queues`. `faults` are what was declared or ordered about it but
    cannot be, in words. `copy_of` is the fleet that it is for another app than the one that has the fleet of that name.
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
    orders: Mapping[str, Overrides],
    declared_max: int = MOST_WORKERS,
    copies: Mapping[str, str] | None = None,
) -> dict[str, EffectiveFleet]:
    """Every fleet by name, the default one among them. A queue is served by one fleet: the first by name that wants it.

    `copies` are the fleets, by name, that another app has for the queues of one: they are the same but for orders.
    Fields count in this order: orders, then the table of the settings, then what stands beside the job. That alone
    never asks for more than `declared_max` workers.
    """
    types = sorted(types, key=lambda declared: declared.name)
    declared = {name: _clamped(standing, declared_max) for name, standing in _declared(types).items()}
    known = {DEFAULT: _default(default, types), **declared}
    for name, table in tables.items():
        before = known.get(name) or _standing(name, Fleet(), Source.SETTINGS)
        known[name] = _laid_over(before, table, "penstock.toml")
    settled = _settled({name: _ordered(standing, orders.get(name)) for name, standing in known.items()})
    for name, base in (copies or {}).items():
        if base in settled and name not in settled:
            served = settled[base]
            copy = replace(
                known[base], name=name, copy_of=base, queues=served.queues, except_queues=served.except_queues
            )
            settled[name] = _ordered(copy, orders.get(name))
    return settled


def changed(fleet: Fleet, said: Mapping[str, object]) -> Fleet:
    """The fleet with these fields, by their names on the wire; Invalid names what cannot be."""
    fields: dict[str, Any] = msgspec.to_builtins(fleet)
    for one, other in (("policy", "target_wait_seconds"), ("target_wait_seconds", "policy")):
        if said.get(one) is not None and other not in said:
            fields.pop(other)
    try:
        return msgspec.convert(fields | dict(said), Fleet)
    except msgspec.ValidationError as error:
        raise Invalid(f"fleet: {error}") from None


def _default(fleet: Fleet, types: Iterable[JobType]) -> EffectiveFleet:
    """The default fleet; a job type whose queue has its name can have none of its own."""
    nameless = [one.name for one in types if one.fleet is not None and one.queue == DEFAULT]
    faults = tuple(
        f"job type {name} declares a fleet, but its queue is named {DEFAULT}: rename it" for name in nameless
    )
    return replace(_standing(DEFAULT, fleet, Source.DEFAULT), faults=faults)


def _declared(types: Iterable[JobType]) -> dict[str, EffectiveFleet]:
    """Those beside job types, each named after the queue of its type. Of two for one queue the first by name counts."""
    found: dict[str, EffectiveFleet] = {}
    for one in types:
        if one.fleet is None or one.queue == DEFAULT:
            continue
        if (before := found.get(one.queue)) is None:
            found[one.queue] = _standing(one.queue, one.fleet, Source.JOB_TYPE)
        elif before.fleet != one.fleet:
            fault = f"job type {one.name} declares another fleet for the same queue; that one is passed over"
            found[one.queue] = replace(before, faults=(*before.faults, fault))
    return found


def _clamped(standing: EffectiveFleet, most: int) -> EffectiveFleet:
    """What stands beside a job may come from a worker that is trusted with its queue, and no more."""
    fleet = standing.fleet
    if fleet.max <= most:
        return standing
    bounded = replace(
        fleet,
        max=most,
        min=min(fleet.min, most),
        fallback=min(fleet.fallback, most),
        keep_warm=tuple(replace(window, workers=min(window.workers, most)) for window in fleet.keep_warm),
    )
    fault = f"up to {fleet.max} workers are declared; fleet.declared_max allows {most}"
    return replace(standing, fleet=bounded, faults=(*standing.faults, fault))


def _standing(name: str, fleet: Fleet, source: Source) -> EffectiveFleet:
    return EffectiveFleet(name=name, fleet=fleet, queues=None, source=source)


def _laid_over(standing: EffectiveFleet, said: Mapping[str, object], where: str) -> EffectiveFleet:
    try:
        return replace(standing, fleet=changed(standing.fleet, said)) if said else standing
    except Invalid as error:
        return replace(standing, faults=(*standing.faults, f"what was said {where} is passed over: {error.message}"))


def _ordered(standing: EffectiveFleet, ordered: Overrides | None) -> EffectiveFleet:
    if ordered is None:
        return standing
    changed_now = _laid_over(standing, ordered.changes, "at run time")
    return replace(changed_now, paused=ordered.paused, count=ordered.count)


def _settled(known: Mapping[str, EffectiveFleet]) -> dict[str, EffectiveFleet]:
    """Each queue given to one fleet, the others told; the default gets the rest."""
    owners: dict[str, str] = {}
    settled: dict[str, EffectiveFleet] = {}
    for name in sorted(set(known) - {DEFAULT}):
        standing = known[name]
        wanted = (name,) if standing.fleet.queues is None else standing.fleet.queues
        taken = {queue: owners[queue] for queue in wanted if queue in owners}
        owners |= dict.fromkeys((queue for queue in wanted if queue not in taken), name)
        faults = tuple(f"queue {queue} is served by fleet {owner} already" for queue, owner in taken.items())
        mine = tuple(queue for queue in dict.fromkeys(wanted) if queue not in taken)
        settled[name] = replace(standing, queues=mine, faults=(*standing.faults, *faults))
    rest = replace(known[DEFAULT], queues=None, except_queues=tuple(sorted(owners)))
    return {DEFAULT: rest, **settled}
