"""The API over a whole engine on real backends, in one process."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.types import ASGIApp

from penstock.api import create_app
from penstock.broker.memory import MemoryBroker
from penstock.config import LimitSettings, Settings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.objects.folder import FolderObjects
from penstock.store.sqlite import SqliteStore
from tests.http.api_calls import JOIN, Client

KIB = 1024


@pytest.fixture
def settings() -> Settings:
    """Limits small enough to reach."""
    return Settings(
        limits=LimitSettings(
            body_bytes=64 * KIB, batch_jobs=100, depth=16, page_jobs=5, file_bytes=100 * KIB, streams=5
        )
    )


@pytest.fixture
async def engine(tmp_path: Path, settings: Settings) -> AsyncIterator[Engine]:
    clock = SystemClock()
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    objects = FolderObjects(tmp_path / "objects", clock)
    engine = Engine(store, MemoryBroker(), objects, settings, clock, random.Random(7))
    yield engine
    await engine.close()


@pytest.fixture
def app(engine: Engine) -> ASGIApp:
    return create_app(engine)


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[Client]:
    """A client of a server that knows the job types `add` and `other`."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        (await client.post("/v1/workers", json=JOIN)).raise_for_status()
        yield client
