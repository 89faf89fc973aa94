"""Fleets: which there are, what operators want of them, and what the autoscaler that acts has said about each."""

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

_orders = msgspec.json.Decoder(Overrides)
_record = msgspec.json.Decoder(FleetRecord)


class Fleets:
    """What is declared beside jobs, in the settings and by operators, as one; and its record."""

    def __init__(self, store: Store, catalog: Catalog, settings: Settings) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self._plans: tuple[object, dict[str, EffectiveFleet]] = (None, {})

    async def plan(self) -> Mapping[str, EffectiveFleet]:
        """Every fleet that there should be, by name, the default one first."""
        reading = await self._catalog.read()
        if self._plans[0] is not reading:
            self._plans = reading, self._plan(reading, _all_orders(reading))
        return self._plans[1]

    def _plan(self, reading: CatalogReading, orders: Mapping[str, Overrides]) -> dict[str, EffectiveFleet]:
        settings = self._settings
        types, most = reading.types.values(), settings.fleet.declared_max
        copies = {name: one.copy_of for name, one in _records(reading).items() if one.copy_of is not None}
        return plan(settings.fleet.default, settings.fleets, types, orders, most, copies)

    async def list(self) -> list[FleetItem]:
        """By name, without their decisions."""
        standing, records, now = await self.plan(), await self.records(), await self._store.now()
        return [_item(standing[name], records.get(name), now) for name in sorted(standing)]

    async def get(self, name: str) -> FleetItem:
        """With its decisions."""
        standing, records = await self._read_fleet(name), await self.records()
        item = _item(standing, records.get(name), await self._store.now())
        return replace(item, decisions=records[name].decisions) if name in records else item

    async def change(self, name: str, change: FleetChange) -> FleetItem:
        """Lay these fields over what is declared; Invalid when together they cannot be."""
        asked = msgspec.to_builtins(change)
        asked.pop("reset", None)

        def ordered(reading: CatalogReading, before: Overrides) -> Overrides:
            kept = {} if change.reset else before.changes
            changes = _without_rival(kept, asked) | asked
            changed(self._plan(reading, {})[name].fleet, changes)
            return replace(before, changes=changes)

        return await self._order(name, ordered)

    async def pause(self, name: str, *, paused: bool) -> FleetItem:
        """Leave a fleet as it is, or look after it again."""
        return await self._order(name, lambda _, before: replace(before, paused=paused))

    async def scale(self, name: str, count: int | None) -> FleetItem:
        """Let it have so many workers, whatever its policy says; None leaves that to the policy again."""

        def ordered(reading: CatalogReading, before: Overrides) -> Overrides:
            most = self._plan(reading, _all_orders(reading))[name].fleet.max
            if count is not None and count > most:
                raise Invalid(f"fleet {name}: {count} workers are above its max ({most}); raise max first")
            return replace(before, count=count)

        return await self._order(name, ordered)

    async def records(self) -> dict[str, FleetRecord]:
        """What the autoscaler has said, by fleet."""
        return _records(await self._catalog.read())

    async def record(self, records: Mapping[str, FleetRecord]) -> None:
        """Keep what is said now. No bell is rung: nobody has to do anything about it."""
        if records:
            known, now = (await self._catalog.read()).notices, await self._store.now()
            kind = NoticeKind.FLEET_RECORD
            told = [notice(kind, name, msgspec.json.encode(one), now, known) for name, one in records.items()]
            await self._store.put_notices(told)
            self._catalog.forget()

    async def forget(self, names: Sequence[str]) -> None:
        """Withdraw the records of fleets that are no more."""
        if names:
            await self._catalog.put_notices(NoticeKind.FLEET_RECORD, dict.fromkeys(names))

    async def _read_fleet(self, name: str) -> EffectiveFleet:
        return _named(await self.plan(), name)

    async def _order(self, name: str, ordered: "ChangeOverrides") -> FleetItem:
        """Make the fleet's orders what `ordered` makes of them, as the store has them now."""

        def told(reading: CatalogReading) -> dict[str, bytes | None]:
            orders = _all_orders(reading)
            _named(self._plan(reading, orders), name)
            now = ordered(reading, orders.get(name, Overrides()))
            return {name: None if now == Overrides() else msgspec.json.encode(now)}

        await self._catalog.change(NoticeKind.FLEET, told)
        return await self.get(name)


ChangeOverrides = Callable[[CatalogReading, Overrides], Overrides]
"""New orders for a fleet, made of the registry and the orders that it has."""


def _named(known: Mapping[str, EffectiveFleet], name: str) -> EffectiveFleet:
    if name not in known:
        raise NotFound(f"there is no fleet {name!r}; there are: {', '.join(sorted(known))}")
    return known[name]


def _all_orders(reading: CatalogReading) -> dict[str, Overrides]:
    standing = [one for one in reading.notices.values() if one.kind == NoticeKind.FLEET and one.value is not None]
    return {one.name: _orders.decode(one.value or b"") for one in standing}


def _records(reading: CatalogReading) -> dict[str, FleetRecord]:
    notices = reading.notices.values()
    records = {one.name: one.value for one in notices if one.kind == NoticeKind.FLEET_RECORD and one.value}
    return {name: record for name, value in records.items() if (record := _decoded(name, value)) is not None}


def _decoded(name: str, value: bytes) -> FleetRecord | None:
    """A record in the words of another version is worth no more than none."""
    try:
        return _record.decode(value)
    except msgspec.ValidationError as error:
        logger.debug("the record of fleet %s cannot be read: %s", name, error)
        return None


def _without_rival(before: Mapping[str, object], asked: Mapping[str, object]) -> dict[str, object]:
    """A policy ends an earlier target, and the other way round."""
    rivals = {"policy": "target_wait_seconds", "target_wait_seconds": "policy"}
    gone = {rivals[name] for name in asked if name in rivals}
    return {name: value for name, value in before.items() if name not in gone}


def _item(standing: EffectiveFleet, record: FleetRecord | None, now: datetime) -> FleetItem:
    """A fleet as it is. What an autoscaler said that is gone is no longer so, but for when it said it."""
    item = FleetItem(
        name=standing.name,
        source=standing.source,
        fleet=shown(standing.fleet),
        queues=standing.queues,
        except_queues=standing.except_queues,
        paused=standing.paused,
        count=standing.count,
        faults=standing.faults,
    )
    if record is None:
        return item
    latest = record.latest
    told = replace(
        item,
        app=record.app,
        latest=latest,
        started=record.started,
        stopped=record.stopped,
        starts=record.starts,
        stops=record.stops,
    )
    if now - latest.at > MAX_AGE:
        return replace(told, reason=NO_AUTOSCALER)
    return replace(
        told,
        desired=latest.desired,
        workers=workers_of(latest.reading),
        reason=latest.reason,
        autoscaler=record.by,
        trouble=record.trouble,
    )
