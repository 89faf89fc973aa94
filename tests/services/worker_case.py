"""A worker at work on the handlers of `worker_app`, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from penstock.config import Settings
from penstock.config.settings import LimitSettings, WorkerSettings
from penstock.model.timing import SystemClock
from penstock.worker.agent import Agent
from tests.services.fake_reach import WITHIN, FakeReach

APP = "tests.services.worker_app:app"


def settings(*, executors: int = 2, log_bytes: int = 256 * 1024, **worker: float) -> Settings:
    values = {"executors": executors, "capacity": 16, "grace_seconds": 0.5, **worker}
    return Settings(worker=WorkerSettings(**values), limits=LimitSettings(log_bytes=log_bytes))  # type: ignore[arg-type]


class Working:
    """A running worker and the engine it talks to."""

    def __init__(self, folder: Path, reach: FakeReach, agent: Agent) -> None:
        self.folder = folder
        self.reach = reach
        self.agent = agent

    def go(self, name: str = "go") -> None:
        (self.folder / name).touch()

    async def appears(self, name: str, seconds: float = WITHIN) -> str:
        """What a handler has told, once it has."""
        await until(f"{name} is told", (self.folder / name).exists, seconds)
        return (self.folder / name).read_text()

    async def vanishes(self, path: Path) -> None:
        await until(f"{path} is gone", lambda: not path.exists())

    def executors(self) -> list[int]:
        return [one.pid for one in psutil.Process().children() if "penstock.worker.executor" in " ".join(one.cmdline())]


@asynccontextmanager
async def working(
    folder: Path, reach: FakeReach | None = None, *, heartbeat: float = 0.1, **options: float
) -> AsyncIterator[Working]:
    reach = reach or FakeReach(heartbeat=heartbeat)
    agent = Agent(APP, reach, settings(**options), SystemClock())  # type: ignore[arg-type]
    await agent.start()
    running = asyncio.ensure_future(agent.run())
    try:
        yield Working(folder, reach, agent)
    finally:
        agent.drain()
        agent.drain()
        async with asyncio.timeout(WITHIN):
            await running


async def until(what: str, true: Callable[[], bool], seconds: float = WITHIN) -> None:
    """Return once something outside this process is true."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)



@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where handlers tell and are told."""
    monkeypatch.setenv("WORKER_APP_FOLDER", str(tmp_path))
    return tmp_path
