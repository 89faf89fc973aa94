"""A worker process. One that holds a URL and a key only loads neither engine, orchestrator, store nor broker."""

import logging
import os

from penstock.config import Settings
from penstock.model.clock import SystemClock
from penstock.model.names import MEMBER
from penstock.worker.agent.agent import Agent, run
from penstock.worker.http_api import HttpWorkerApi
from penstock.worker.processes import PARENT, drain_with_parent

logger = logging.getLogger("penstock.metrics")


async def work(settings: Settings, app: str) -> None:
    """Run one worker until a signal; it drains first. It reaches the server's HTTP, or store and broker directly."""
    if parent := os.environ.get(PARENT):
        drain_with_parent(int(parent))
    if settings.worker.direct:
        from penstock.runtime.direct_worker import work_directly

        await work_directly(settings, app)
    else:
        await _work_over_http(settings, app)


async def _work_over_http(settings: Settings, app: str) -> None:
    warn_of_no_metrics(settings, "worker")
    api = HttpWorkerApi(settings.worker.url, settings.worker.key)
    try:
        await run(Agent(app, api, settings, SystemClock(), worker=os.environ.get(MEMBER)))
    finally:
        await api.close()


def warn_of_no_metrics(settings: Settings, role: str) -> None:
    """Log that a process which reaches the store through a server has no metrics: the server counts its moves."""
    if settings.metrics.address:
        logger.warning("metrics.address: this %s tells none; its server's /metrics counts what it does", role)
