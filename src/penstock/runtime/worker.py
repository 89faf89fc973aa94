"""A worker process. One that holds a URL and a key only loads neither engine, orchestrator, store nor broker."""

import logging
import os

from penstock.config import Settings
from penstock.model.clock import SystemClock
from penstock.model.names import MEMBER
from penstock.worker.agent.agent import Agent, run
from penstock.worker.http_api import HttpWorkerApi
from penstock.worker.processes import PARENT, drain_with_parent

ECS_METADATA = "ECS_CONTAINER_METADATA_URI_V4"
"""The variable that leads to what a task of ECS is told about itself."""

logger = logging.getLogger("penstock.metrics")


async def work(settings: Settings, app: str) -> None:
    """Run one worker until a signal; it drains first. It reaches the server's HTTP, or store and broker directly."""
    if parent := os.environ.get(PARENT):
        drain_with_parent(int(parent))
    name = os.environ.get(MEMBER) or await _read_own_name()
    if settings.worker.direct:
        from penstock.runtime.direct_worker import work_directly

        await work_directly(settings, app, name)
    else:
        await _work_over_http(settings, app, name)


async def _read_own_name() -> str | None:
    """The name that its place gives a worker; None where it gives none."""
    if not os.environ.get(ECS_METADATA):
        return None
    from penstock.worker.ecs_task import read_task_id

    return await read_task_id(os.environ[ECS_METADATA], SystemClock())


async def _work_over_http(settings: Settings, app: str, name: str | None) -> None:
    warn_of_no_metrics(settings, "worker")
    api = HttpWorkerApi(settings.worker.url, settings.worker.key)
    try:
        await run(Agent(app, api, settings, SystemClock(), worker=name))
    finally:
        await api.close()


def warn_of_no_metrics(settings: Settings, role: str) -> None:
    """Log that a process which reaches the store through a server has no metrics: the server counts its moves."""
    if settings.metrics.address:
        logger.warning("metrics.address: this %s tells none; its server's /metrics counts what it does", role)
