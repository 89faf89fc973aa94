"""Departures: when a worker last had a type is kept with the type, once none has it, and not with each worker."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from penstock.engine.catalog import Catalog, CatalogReading
from penstock.engine.type_fit import is_silent
from penstock.model.notices import NoticeKind
from penstock.model.workers import Worker

PRECISION = timedelta(minutes=1)
"""A departure that is less than this after what is known is not written: each shard saw the worker at its own time."""


async def note_departures(catalog: Catalog, gone: Sequence[Worker]) -> None:
    """Keep with each type that only these workers had when the last of them was heard from."""

    def told(reading: CatalogReading) -> dict[str, bytes | None]:
        departures = {name: at for name, at in _departures(gone, reading).items() if _is_later(name, at, reading)}
        return {name: msgspec.json.encode(replace(reading.types[name], left_at=at)) for name, at in departures.items()}

    if gone:
        await catalog.change(NoticeKind.TYPE, told)


def _departures(gone: Iterable[Worker], reading: CatalogReading) -> dict[str, datetime]:
    """When workers that are gone were last heard from, by type, of those that no other worker has now."""
    now = reading.shard_now
    had = {name for worker in reading.workers if not is_silent(worker, now) for name in worker.types}
    found: dict[str, datetime] = {}
    for worker in gone:
        at = worker.seen_at or now
        found |= {name: max(at, found.get(name, at)) for name in worker.types if name not in had}
    return found


def _is_later(name: str, at: datetime, reading: CatalogReading) -> bool:
    declared = reading.types.get(name)
    if declared is None:
        return False
    return at - max(declared.declared_at, declared.left_at or declared.declared_at) >= PRECISION
