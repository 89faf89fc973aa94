"""Scheduler processes: one more ticker, for a server that is up elsewhere."""

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from types import MappingProxyType

from penstock.config import Settings
from penstock.model.errors import ServerUnavailable
from penstock.model.timing import SystemClock, seconds
from penstock.runtime.stopping import Stopping
from penstock.scheduler import Ticker, run_service
from penstock.scheduler.http import HttpTimekeeper
from penstock.worker.calls import Broken, Calls
from penstock.worker.http import problem_of

logger = logging.getLogger("penstock.scheduler")

JSON = MappingProxyType({"content-type": "application/json"})


class ServerLine:
    """Keeps `scheduler.http.Line` over kept connections to one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._calls = Calls(url)

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        try:
            answer = await self._calls.call("POST", path, body, JSON, seconds)
        except Broken as error:
            raise ServerUnavailable(f"no answer from {self._url}: {error}") from None
        if not 200 <= answer.status < 300:
            raise problem_of(answer.status, answer.body)
        return answer.body

    async def close(self) -> None:
        await self._calls.close()


async def schedule(settings: Settings) -> None:
    """Run one scheduler against the server of the settings, until a signal. It owns nothing, so it stops at once."""
    stopping = Stopping()
    stopping.listen()
    timekeeper = HttpTimekeeper(ServerLine(settings.worker.url), scheduler_id())
    ticker = Ticker(timekeeper, seconds(settings.timing.slot_seconds), SystemClock())
    tasks = [asyncio.ensure_future(loop) for loop in ticking(ticker)]
    logger.info("scheduler ready, for %s", settings.worker.url)
    try:
        await stopping.asked.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await timekeeper.close()


def ticking(ticker: Ticker) -> tuple[Coroutine[None, None, None], Coroutine[None, None, None]]:
    """The two loops of a ticker: deciding, and hearing of changes."""
    return run_service("ticker", ticker.step, ticker.wake), run_service("changes", ticker.hear)


def scheduler_id() -> str:
    """A name for this process, as a worker has one."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-") or "host"
    return f"{host[:64]}-{os.getpid()}"
