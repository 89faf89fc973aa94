"""The metrics of a process that is no API: schedulers, autoscalers and direct workers answer at `metrics.address`."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from penstock.api import create_app
from penstock.api.app import METRICS_OPERATIONS
from penstock.config import Settings
from penstock.engine import Engine
from penstock.runtime.guard import refuse_unguarded
from penstock.runtime.listener import answer, listen

logger = logging.getLogger("penstock.metrics")

TRY_ANOTHER_PORT = "metrics.address", "choose another port with --metrics-port (0 takes a free one)"


def with_metrics_address(settings: Settings) -> Settings:
    """The settings of a process whose only server is that of its metrics, if it has one at all.

    So an address beyond this machine needs API keys, as any server there does; one of this machine does not, as no
    proxy stands in front of it.
    """
    if not settings.metrics.address:
        return settings
    host, _, port = settings.metrics.address.rpartition(":")
    return replace(settings, server=replace(settings.server, host=host.strip("[]"), port=int(port), keys="auto"))


@asynccontextmanager
async def serve_metrics(engine: Engine) -> AsyncIterator[None]:
    """Answer `/metrics` and `/healthz` while the body runs, where the settings name an address."""
    settings = engine.settings
    if not settings.metrics.address:
        yield
        return
    await refuse_unguarded(settings.server, engine.keys, "metrics.address")
    with listen(settings.server, TRY_ANOTHER_PORT) as listener:
        async with answer(create_app(engine, METRICS_OPERATIONS), listener, engine) as url:
            logger.info("metrics at %s/metrics", url)
            yield
