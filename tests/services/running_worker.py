"""A worker process that runs the handlers of `worker_app`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from penstock.config import Settings
from penstock.config.settings import LimitSettings, WorkerSettings
from penstock.model.clock import Clock, SystemClock
from penstock.worker.agent.agent import Agent
from tests.services.fake_worker_api import WITHIN, FakeWorkerApi
from tests.watch import FolderWatch, until_there

APP = "tests.services.worker_app:app"


def settings(*, executors: int = 2, log_bytes: int = 256 * 1024, **worker: float | str) -> Settings:
    values = {"executors": executors, "capacity": 16, "grace_seconds": 0.5, **worker}
    return Settings(worker=WorkerSettings(**values), limits=LimitSettings(log_bytes=log_bytes))  # type: ignore[arg-type]


class RunningWorker:
    """A running worker and the engine it talks to."""

    def __init__(self, folder: Path, worker_api: FakeWorkerApi, agent: Agent, others: frozenset[int]) -> None:
        self.folder = folder
        self.worker_api = worker_api
        self.agent = agent
        self._others = others

    def go(self, name: str = "go") -> None:
        (self.folder / name).touch()

    async def appears(self, name: str, seconds: float = WITHIN) -> str:
        """The content of the file that a handler writes, once it is there."""
        async with asyncio.timeout(seconds):
            await until_there(self.folder / name)
        return (self.folder / name).read_text()

    async def vanishes(self, path: Path) -> None:
        # Its parent may be gone first.
        with suppress(FileNotFoundError), FolderWatch(path.parent) as folder:
            async with asyncio.timeout(WITHIN):
                await folder.until(lambda: not path.exists())

    def executors(self) -> list[int]:
        """The processes that run handlers now; those of other tests, servers for one, were there before."""
        return [pid for pid in children() if pid not in self._others]


@asynccontextmanager
async def run_worker(
    folder: Path,
    worker_api: FakeWorkerApi | None = None,
    *,
    clock: Clock | None = None,
    heartbeat: float = 0.1,
    **options: float | str,
) -> AsyncIterator[RunningWorker]:
    """Run a worker whose handlers exchange files with the test in `folder`; at the end it is drained in a hurry."""
    worker_api = worker_api or FakeWorkerApi(heartbeat=heartbeat)
    agent = Agent(APP, worker_api, settings(**options), clock or SystemClock())  # type: ignore[arg-type]
    others = frozenset(children())
    with handlers_in(folder):
        await agent.start()
        running = asyncio.ensure_future(agent.run())
        try:
            yield RunningWorker(folder, worker_api, agent, others)
        finally:
            agent.drain()
            agent.drain()
            async with asyncio.timeout(WITHIN):
                await running


def children() -> list[int]:
    """The processes that this one has started and that have not ended."""
    return [one.pid for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def handlers_in(folder: Path) -> Iterator[None]:
    """Executors started in the body find this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKER_APP_FOLDER", str(folder))
        yield
