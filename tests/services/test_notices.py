"""What is declared once and known everywhere, while several processes change it: decided in the write."""

import asyncio
import random
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.clock import seconds
from penstock.model.errors import NotFound
from penstock.model.keys import KeyId, KeyScope
from penstock.model.notices import NoticeKind
from penstock.model.wire.fleets import FleetChange
from penstock.model.wire.keys import KeyRequest, RotateRequest
from penstock.objects.folder import FolderObjects
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import join, submit

CATALOG_AGE = seconds(Settings().timing.catalog_seconds)


@pytest.fixture
def other(engine: Engine, tmp_path: Path, clock: SimulatedClock, settings: Settings) -> Engine:
    """The engine of another process: over the same store, with a catalog of its own."""
    objects = FolderObjects(tmp_path / "objects", clock=clock)
    return Engine(engine.store, MemoryBroker(), objects, settings, clock, random.Random(8))


async def test_a_queue_that_was_just_paused_elsewhere_is_resumed(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    await engine.catalog.read()
    assert (await other.queues.pause("sums", paused=True)).paused
    assert not (await engine.queues.pause("sums", paused=False)).paused
    clock.advance(CATALOG_AGE * 2)
    assert not (await other.queues.get("sums")).paused


async def test_a_queue_that_was_just_resumed_elsewhere_is_paused(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    await engine.queues.pause("sums", paused=True)
    await engine.catalog.read()
    assert not (await other.queues.pause("sums", paused=False)).paused
    assert (await engine.queues.pause("sums", paused=True)).paused
    clock.advance(CATALOG_AGE * 2)
    assert (await other.queues.get("sums")).paused


async def test_a_type_that_was_just_withdrawn_elsewhere_is_declared(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    await engine.catalog.read()
    await other.catalog.put_notices(NoticeKind.TYPE, {"add": None})
    clock.advance(CATALOG_AGE / 2)
    await join(engine)
    clock.advance(CATALOG_AGE * 2)
    assert (await submit(other)).type == "add"


async def test_orders_of_two_operators_at_once_are_both_kept(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    await asyncio.gather(
        engine.fleets.pause("default", paused=True), other.fleets.change("default", FleetChange(max=3))
    )
    clock.advance(CATALOG_AGE * 2)
    item = await engine.fleets.get("default")
    assert (item.paused, item.fleet.max) == (True, 3)


async def test_a_key_that_was_just_revoked_elsewhere_cannot_be_rotated(engine: Engine, other: Engine) -> None:
    made = await engine.keys.create(KeyRequest(name="ci", scopes=(KeyScope.JOBS_READ,)))
    key = KeyId(made.id)
    await engine.keys.list()
    await other.keys.revoke(key)
    with pytest.raises(NotFound):
        await engine.keys.rotate(key, RotateRequest(grace_seconds=60))
    assert await other.keys.list() == []
