"""The roles scheduler and autoscaler: `penstock scheduler`, `penstock autoscaler`, and the fleets of `penstock up`."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from penstock.autoscaler.backends import FleetBackend
from penstock.autoscaler.backends.processes import ProcessFleets
from penstock.autoscaler.loop import Autoscaler
from penstock.backends import check_shared, embedded, engine_extras, open_engine
from penstock.backends.fleets import fleet_backend, fleet_environ, fleet_extras
from penstock.backends.worker_environ import worker_environ
from penstock.config import Settings
from penstock.engine import Engine
from penstock.http1 import ServerConnection
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import InvalidSetting, Unavailable
from penstock.model.extras import require
from penstock.runtime.metrics_server import serve_metrics, with_metrics_address
from penstock.runtime.services import (
    Stopping,
    metrics_loops,
    process_name,
    run_loops,
    services,
    signal_loops,
    step_recorder,
    ticker_loops,
)
from penstock.runtime.tallies import collect_tallies
from penstock.runtime.worker import warn_of_no_metrics
from penstock.scheduler import Ticker, run_service
from penstock.scheduler.http_api import HttpSchedulerApi
from penstock.worker.agent.agent import declare
from penstock.worker.prefork.launcher import Launcher
from penstock.worker.protocol import Loaded

scheduler_logger = logging.getLogger("penstock.scheduler")


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
        serve_metrics(engine),
        services(engine, ticker=True),
    ):
        scheduler_logger.info(
            "scheduler ready, for shards %s", ", ".join(str(one.shard) for one in engine.store.shards())
        )
        await stopping.asked.wait()


async def _schedule_over_http(settings: Settings, stopping: Stopping) -> None:
    warn_of_no_metrics(settings, "scheduler")
    api = HttpSchedulerApi(ServerConnection(settings.worker.url, settings.worker.key), process_name())
    ticker = Ticker(api, seconds(settings.timing.slot_seconds), SystemClock())
    try:
        async with run_loops(ticker_loops(ticker)):
            scheduler_logger.info("scheduler ready, for %s", settings.worker.url)
            await stopping.asked.wait()
    finally:
        await api.close()


logger = logging.getLogger("penstock.autoscaler")

OLDER_THAN_ANY_IMAGE = timedelta(days=365)
"""The age that an autoscaler's own copy of the app is declared with."""


@asynccontextmanager
async def local_fleets(
    engine: Engine, settings: Settings, app: str, url: str, stopping: Stopping
) -> AsyncIterator[None]:
    """Run an autoscaler for worker processes on this machine while the body runs; then they drain.

    The app's types and schedules are declared first, before there is any worker. InvalidSetting if the app cannot be
    imported.
    """
    launcher = Launcher(prefork=settings.worker.template)
    patience = seconds(settings.worker.drain_seconds)
    fleets = ProcessFleets(launcher.launch, engine.clock, random.Random(), patience=patience)
    async with collect_tallies(engine) as tallying:
        environ = {**worker_environ(settings, url), **tallying}
        try:
            await _declare(engine, await launcher.load(app, environ), settings.worker.app or app)
            hurrying = asyncio.ensure_future(_hurry(fleets, stopping))
            async with _run_autoscaler(engine, fleets, settings, app, environ):
                yield
            hurrying.cancel()
        finally:
            await fleets.close()
            await launcher.close()


async def scale(settings: Settings, app: str) -> None:
    """Run one autoscaler until a signal, over the store of the settings. Any number may run: one of each app acts.

    Workers in containers and pods outlive it; processes of this machine drain with it.
    """
    check_shared(settings, "autoscaler")
    require(*engine_extras(settings), *fleet_extras(settings))
    stopping = Stopping()
    stopping.listen()
    async with (
        open_engine(with_metrics_address(settings)) as engine,
        serve_metrics(engine),
        run_loops([*signal_loops(engine), *metrics_loops(engine)]),
    ):
        if settings.fleet.backend == "processes":
            async with local_fleets(engine, settings, app, settings.worker.url, stopping):
                logger.info("autoscaler ready")
                await stopping.asked.wait()
        else:
            await _declare_from_here(engine, settings, app)
            async with _run_autoscaler(engine, fleet_backend(settings, engine), settings, app, fleet_environ(settings)):
                logger.info("autoscaler ready")
                await stopping.asked.wait()


async def _declare(engine: Engine, loaded: Loaded, app_name: str, age: timedelta = timedelta(0)) -> None:
    await engine.catalog.declare(loaded.types, age, app=app_name)
    engine.catalog.expecting = None
    await declare(loaded, engine.worker_api, age.total_seconds())


async def _declare_from_here(engine: Engine, settings: Settings, app: str) -> None:
    """Declare the app's types before there is any worker, if the app is installed beside the autoscaler.

    Declarations of workers, from their images, always count as newer.
    """
    launcher = Launcher(prefork=False)
    try:
        await _declare(engine, await launcher.load(app, {}), settings.worker.app or app, OLDER_THAN_ANY_IMAGE)
    except (InvalidSetting, Unavailable) as error:
        logger.warning("the job types of %s are known once a worker has joined: %s", app, error.message)
    finally:
        await launcher.close()


@asynccontextmanager
async def _run_autoscaler(
    engine: Engine, fleets: FleetBackend, settings: Settings, app: str, environ: Mapping[str, str]
) -> AsyncIterator[None]:
    """Scale these fleets while the body runs; their workers go on afterwards."""
    named = settings.worker.app or None
    autoscaler = Autoscaler(engine, fleets, holder=process_name(), app=app, app_name=named, environment=environ)
    try:
        noted = step_recorder(engine, "autoscaler")
        async with run_loops([run_service("autoscaler", autoscaler.step, autoscaler.wake, noted)]):
            yield
    finally:
        await autoscaler.close()
        await fleets.close()


async def _hurry(fleets: ProcessFleets, stopping: Stopping) -> None:
    """Release running jobs at once after a second Ctrl-C."""
    await stopping.urgent.wait()
    fleets.hurry()
