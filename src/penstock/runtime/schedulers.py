"""Scheduler processes: any number, over store and broker directly, or over the HTTP of a server."""

import logging
import os
import socket
from types import MappingProxyType

from penstock.config import Settings
from penstock.model.errors import ServerUnavailable
from penstock.model.timing import SystemClock, seconds
from penstock.runtime.backends import check_shared, embedded, open_engine
from penstock.runtime.metrics_server import telling_metrics, warn_of_no_metrics, with_metrics_address
from penstock.runtime.services import run_loops, services, ticker_loops
from penstock.runtime.stopping import Stopping
from penstock.scheduler import Ticker
from penstock.scheduler.http import HttpSchedulerApi
from penstock.worker.calls import Broken, Calls
from penstock.worker.http import error_of

scheduler_logger = logging.getLogger("penstock.scheduler")

JSON = MappingProxyType({"content-type": "application/json"})


class HttpSchedulerConnection:
    """Keeps `scheduler.http.Line` over kept connections to one server."""

    def __init__(self, url: str, key: str = "") -> None:
        self._url = url
        self._calls = Calls(url, key)

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        try:
            answer = await self._calls.call("POST", path, body, JSON, seconds)
        except Broken as error:
            raise ServerUnavailable(f"no answer from {self._url}: {error}") from None
        if not answer.good:
            raise error_of(answer, self._url)
        return answer.body

    async def close(self) -> None:
        await self._calls.close()


async def schedule(settings: Settings) -> None:
    """Run one scheduler until a signal: over the store and the broker of the settings, or over a server's HTTP.

    It owns nothing, so it stops at once. Over the store it also dispatches, reaps and prunes; over HTTP it ticks, and
    the server does the rest.
    """
    stopping = Stopping()
    stopping.listen()
    if embedded(settings):
        await _schedule_over_http(settings, stopping)
    else:
        await _schedule_directly(settings, stopping)


async def _schedule_directly(settings: Settings, stopping: Stopping) -> None:
    check_shared(settings, "scheduler")
    async with (
        open_engine(with_metrics_address(settings)) as engine,
        telling_metrics(engine),
        services(engine, ticker=True),
    ):
        scheduler_logger.info(
            "scheduler ready, for shards %s", ", ".join(str(one.shard) for one in engine.store.shards())
        )
        await stopping.asked.wait()


async def _schedule_over_http(settings: Settings, stopping: Stopping) -> None:
    warn_of_no_metrics(settings, "scheduler")
    timekeeper = HttpSchedulerApi(HttpSchedulerConnection(settings.worker.url, settings.worker.key), process_name())
    ticker = Ticker(timekeeper, seconds(settings.timing.slot_seconds), SystemClock())
    try:
        async with run_loops(ticker_loops(ticker)):
            scheduler_logger.info("scheduler ready, for %s", settings.worker.url)
            await stopping.asked.wait()
    finally:
        await timekeeper.close()


def process_name() -> str:
    """A name for this process, as a worker has one."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-") or "host"
    return f"{host[:64]}-{os.getpid()}"
