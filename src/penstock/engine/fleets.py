"""Fleets: their settings, the overrides of operators, and the records of the leading autoscaler."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from penstock.config import Settings
from penstock.engine.catalog import Catalog, CatalogReading
from penstock.engine.jobs import MAX_AGE
from penstock.model.errors import Invalid, NotFound
from penstock.model.fleet_plan import EffectiveFleet, Overrides, changed, plan
from penstock.model.notices import NoticeKind, notice
from penstock.model.wire.fleets import FleetChange, FleetItem, FleetRecord, shown, workers_of
from penstock.store import Store

logger = logging.getLogger("penstock.engine")

NO_AUTOSCALER = "no autoscaler runs this fleet"

_overrides = msgspec.json.Decoder(Overrides)
_record = msgspec.json.Decoder(FleetRecord)


class Fleets:
    """Fleets as declared with job types, in the settings and by operators, with their records."""

    def __init__(self, store: Store, catalog: Catalog, settings: Settings) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self._plans: tuple[object, dict[str, EffectiveFleet]] = (None, {})

    async def plan(self) -> Mapping[str, EffectiveFleet]:
        """Every fleet that there should be, by name, the default one first."""
        reading = await self._catalog.read()
        if self._plans[0] is not reading:
            self._plans = reading, self._plan(reading, _all_overrides(reading))
        return self._plans[1]

    def _plan(self, reading: CatalogReading, overrides: Mapping[str, Overrides]) -> dict[str, EffectiveFleet]:
        settings = self._settings
        types, most = reading.types.values(), settings.fleet.declared_max
        copies = {name: one.copy_of for name, one in _records(reading).items() if one.copy_of is not None}
        return plan(settings.fleet.default, settings.fleets, types, overrides, most, copies)

    async def list(self) -> list[FleetItem]:
        """By name, without their decisions."""
        fleets, records, now = await self.plan(), await self.records(), await self._store.now()
        return [_item(fleets[name], records.get(name), now) for name in sorted(fleets)]

    async def get(self, name: str) -> FleetItem:
        """With its decisions."""
        fleet, records = await self._get_fleet(name), await self.records()
        item = _item(fleet, records.get(name), await self._store.now())
        return replace(item, decisions=records[name].decisions) if name in records else item

    async def change(self, name: str, change: FleetChange) -> FleetItem:
        """Override these fields of the declared fleet; Invalid if the result is."""
        asked = msgspec.to_builtins(change)
        asked.pop("reset", None)

        def override(reading: CatalogReading, before: Overrides) -> Overrides:
            kept = {} if change.reset else before.changes
            changes = _without_rival(kept, asked) | asked
            changed(self._plan(reading, {})[name].fleet, changes)
            return replace(before, changes=changes)

        return await self._override(name, override)

    async def pause(self, name: str, *, paused: bool) -> FleetItem:
        """Pause the scaling of a fleet, or resume it."""
        return await self._override(name, lambda _, before: replace(before, paused=paused))

    async def scale(self, name: str, count: int | None) -> FleetItem:
        """Fix the number of workers, whatever the policy says; None leaves it to the policy again."""

        def override(reading: CatalogReading, before: Overrides) -> Overrides:
            most = self._plan(reading, _all_overrides(reading))[name].fleet.max
            if count is not None and count > most:
                raise Invalid(f"fleet {name}: {count} workers are above its max ({most}); raise max first")
            return replace(before, count=count)

        return await self._override(name, override)

    async def records(self) -> dict[str, FleetRecord]:
        """The autoscaler's records, by fleet."""
        return _records(await self._catalog.read())

    async def record(self, records: Mapping[str, FleetRecord]) -> None:
        """Store records. No signal is published: no process acts on them."""
        if records:
            known, now = (await self._catalog.read()).notices, await self._store.now()
            kind = NoticeKind.FLEET_RECORD
            notices = [notice(kind, name, msgspec.json.encode(one), now, known) for name, one in records.items()]
            await self._store.put_notices(notices)
            self._catalog.forget()

    async def forget(self, names: Sequence[str]) -> None:
        """Withdraw the records of fleets that no longer exist."""
        if names:
            await self._catalog.put_notices(NoticeKind.FLEET_RECORD, dict.fromkeys(names))

    async def _get_fleet(self, name: str) -> EffectiveFleet:
        return _named(await self.plan(), name)

    async def _override(self, name: str, override: "ChangeOverrides") -> FleetItem:
        """Replace the overrides of a fleet by what `override` makes of those in the store now."""

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            overrides = _all_overrides(reading)
            _named(self._plan(reading, overrides), name)
            now = override(reading, overrides.get(name, Overrides()))
            return {name: None if now == Overrides() else msgspec.json.encode(now)}

        await self._catalog.change(NoticeKind.FLEET, decide)
        return await self.get(name)


ChangeOverrides = Callable[[CatalogReading, Overrides], Overrides]
"""The new overrides of a fleet, from the registry and the present ones."""


def _named(known: Mapping[str, EffectiveFleet], name: str) -> EffectiveFleet:
    if name not in known:
        raise NotFound(f"there is no fleet {name!r}; there are: {', '.join(sorted(known))}")
    return known[name]


def _all_overrides(reading: CatalogReading) -> dict[str, Overrides]:
    in_force = [one for one in reading.notices.values() if one.kind == NoticeKind.FLEET and one.value is not None]
    return {one.name: _overrides.decode(one.value or b"") for one in in_force}


def _records(reading: CatalogReading) -> dict[str, FleetRecord]:
    notices = reading.notices.values()
    records = {one.name: one.value for one in notices if one.kind == NoticeKind.FLEET_RECORD and one.value}
    return {name: record for name, value in records.items() if (record := _decoded(name, value)) is not None}


def _decoded(name: str, value: bytes) -> FleetRecord | None:
    """None for a record that another version wrote and this one cannot read."""
    try:
        return _record.decode(value)
    except msgspec.ValidationError as error:
        logger.debug("the record of fleet %s cannot be read: %s", name, error)
        return None


def _without_rival(before: Mapping[str, object], asked: Mapping[str, object]) -> dict[str, object]:
    """The overrides without an earlier target if a policy is asked for, and the other way round."""
    rivals = {"policy": "target_wait_seconds", "target_wait_seconds": "policy"}
    gone = {rivals[name] for name in asked if name in rivals}
    return {name: value for name, value in before.items() if name not in gone}


def _item(effective: EffectiveFleet, record: FleetRecord | None, now: datetime) -> FleetItem:
    """A fleet as clients see it. From a record older than MAX_AGE only the totals and its last decision count."""
    item = FleetItem(
        name=effective.name,
        source=effective.source,
        fleet=shown(effective.fleet),
        queues=effective.queues,
        except_queues=effective.except_queues,
        paused=effective.paused,
        count=effective.count,
        faults=effective.faults,
    )
    return item if record is None else _with_record(item, record, now)


def _with_record(item: FleetItem, record: FleetRecord, now: datetime) -> FleetItem:
    latest = record.latest
    recorded = replace(
        item,
        app=record.app,
        latest=latest,
        started=record.started,
        stopped=record.stopped,
        starts=record.starts,
        stops=record.stops,
    )
    if now - latest.at > MAX_AGE:
        return replace(recorded, reason=NO_AUTOSCALER)
    return replace(
        recorded,
        desired=latest.desired,
        workers=workers_of(latest.reading),
        reason=latest.reason,
        autoscaler=record.by,
        trouble=record.trouble,
    )
