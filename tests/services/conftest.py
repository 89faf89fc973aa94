"""A whole engine on real backends in a temporary folder, with a clock that only moves when told."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.objects.folder import FolderObjects
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
async def engine(tmp_path: Path, clock: SimulatedClock, settings: Settings) -> AsyncIterator[Engine]:
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    objects = FolderObjects(tmp_path / "objects", clock=clock)
    engine = Engine(store, MemoryBroker(), objects, settings, clock, random.Random(7))
    yield engine
    await engine.close()
