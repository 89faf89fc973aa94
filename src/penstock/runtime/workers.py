"""Worker processes: running one, and keeping one running beside the server."""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

import msgspec

from penstock.config import Settings, WorkerSettings
from penstock.model.errors import InvalidSetting
from penstock.model.timing import Clock, SystemClock
from penstock.model.workers import Worker
from penstock.runtime.stopping import Stopping
from penstock.worker.agent.agent import Agent
from penstock.worker.http import HttpReach
from penstock.worker.mortality import stop_with
from penstock.worker.run import run

logger = logging.getLogger("penstock.server")

UNUSABLE = 2
"""Exit status of a worker whose app cannot be used: starting it again would not help."""

PARENT = "PENSTOCK_PARENT"
"""Names the process that a worker started beside a server drains with, however that process ends."""

JOIN_WITHIN = timedelta(seconds=30)
LOOK_EVERY = timedelta(milliseconds=20)
RESTART_AFTER = timedelta(seconds=1)


class WorkerProcess:
    """A worker beside the server: started again when it dies, drained when the server stops."""

    def __init__(self, app: str, url: str, settings: WorkerSettings, stopping: Stopping) -> None:
        self._command = [sys.executable, "-m", "penstock", "worker", app]
        self._environ = {**os.environ, **worker_environ(settings, url)}
        self._stopping = stopping
        self._clock: Clock = SystemClock()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        await self._stop()

    async def joined(self, workers: Callable[[], Awaitable[Sequence[Worker]]]) -> None:
        """Return once the worker has presented itself, or was asked to stop; raise if its app cannot be used."""
        process = self._running()
        deadline = self._clock.monotonic() + JOIN_WITHIN.total_seconds()
        while not self._stopping.asked.is_set() and self._clock.monotonic() < deadline:
            if process.returncode is not None:
                raise InvalidSetting("the worker could not start; what it said stands above")
            if any(worker.pid == process.pid for worker in await workers()):
                return
            await self._clock.sleep(LOOK_EVERY)

    async def supervise(self) -> None:
        """Keep a worker running until this process is asked to stop."""
        asked = asyncio.ensure_future(self._stopping.asked.wait())
        while not asked.done():
            ended = asyncio.ensure_future(self._running().wait())
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await self._replace(ended.result())

    async def _replace(self, status: int) -> None:
        if status == UNUSABLE:
            raise InvalidSetting("the worker cannot use its app any more; what it said stands above")
        logger.warning("the worker ended with status %d; starting another", status)
        await self._clock.sleep(RESTART_AFTER)
        await self._start()

    async def _start(self) -> None:
        # A session of its own: Ctrl-C reaches only the server, which then drains the worker in order.
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environ, start_new_session=True, stdin=asyncio.subprocess.DEVNULL
        )

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the worker was not started")
        return self._process

    async def _stop(self) -> None:
        process = self._running()
        if process.returncode is not None:
            return
        process.terminate()
        ended = asyncio.ensure_future(process.wait())
        urgent = asyncio.ensure_future(self._stopping.urgent.wait())
        await asyncio.wait({ended, urgent}, return_when=asyncio.FIRST_COMPLETED)
        urgent.cancel()
        if not ended.done():
            process.terminate()
            await ended


def worker_environ(settings: WorkerSettings, url: str) -> dict[str, str]:
    """The worker's settings as the environment that gives them to another process."""
    values = msgspec.structs.asdict(settings) | {"url": url}
    texts = {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in values.items()}
    return {f"PENSTOCK_WORKER_{name.upper()}": text for name, text in texts.items()} | {PARENT: str(os.getpid())}


async def work(settings: Settings, app: str) -> None:
    """Run one worker against the server of the settings, until a signal; it drains first."""
    if parent := os.environ.get(PARENT):
        stop_with(int(parent))
    reach = HttpReach(settings.worker.url)
    try:
        await run(Agent(app, reach, settings, SystemClock()))
    finally:
        await reach.close()
