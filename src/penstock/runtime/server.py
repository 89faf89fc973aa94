"""Servers: `penstock up`, everything from one command; `penstock api`, one of several behind a load balancer."""

import gc
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api import create_app
from penstock.backends import check_shared, data_folder, open_engine
from penstock.config import Settings
from penstock.dashboard import PageApp
from penstock.engine import Engine
from penstock.model.clock import seconds, within
from penstock.model.keys import KeyScope
from penstock.runtime.guard import keep_token, refuse_unguarded
from penstock.runtime.listener import answer, listen
from penstock.runtime.roles import local_fleets
from penstock.runtime.services import Stopping, run_loops, services, signal_loops
from penstock.runtime.subscriptions import declare_subscriptions
from penstock.runtime.tcp import refuse_new_connections

logger = logging.getLogger("penstock.server")

BESIDE = (
    KeyScope.WORKER,
    KeyScope.SCHEDULES,
    KeyScope.JOBS_READ,
    KeyScope.JOBS_WRITE,
    KeyScope.JOBS_CANCEL,
    KeyScope.QUEUES,
)
"""The scopes of a local worker's key: it works, declares schedules, and its handlers use the SDK."""

LEAVE_WITHIN = seconds(1.0)
"""How long an API goes on serving after it was asked to stop."""

TURN_AWAY_WITHIN = seconds(0.25)
"""How long it then serves open connections and accepts no new ones."""


async def up(
    settings: Settings, app: str | None, *, workers: bool = True, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; then drain the workers, answer what is open, and return.

    Workers come and go with the work. `on_ready` is called with the URL once requests are answered and the types of
    the app, if any, are known.
    """
    stopping = Stopping()
    stopping.listen()
    async with (
        _open(settings, expecting=app if workers else None) as (engine, listener),
        services(engine, ticker=settings.server.scheduler),
        _http(engine, listener) as url,
    ):
        if app is None or not workers:
            _call(on_ready, url)
            await _wait_for_stop(stopping, engine)
        else:
            # A key of its own: PENSTOCK_KEY is for other servers.
            with keep_token(data_folder(settings), partial(engine.keys.lend, "worker", BESIDE)) as token:
                own = replace(settings, worker=replace(settings.worker, key=token))
                async with local_fleets(engine, own, app, url, stopping):
                    _call(on_ready, url)
                    await _wait_for_stop(stopping, engine)


async def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Answer requests until SIGINT or SIGTERM, and sweep nothing: schedulers do. Any number may run.

    Asked to stop, it goes on serving for a moment and closes each connection after its answer, so that a load balancer
    sends clients to other servers and no request fails.
    """
    check_shared(settings, "api")
    stopping = Stopping()
    stopping.listen()
    async with (
        _open(settings) as (engine, listener),
        run_loops(signal_loops(engine)),
        _http(engine, listener) as url,
    ):
        _call(on_ready, url)
        await _wait_for_stop(stopping, engine)
        await within(LEAVE_WITHIN, stopping.urgent.wait())
        refuse_new_connections(listener)
        await within(TURN_AWAY_WITHIN, stopping.urgent.wait())


async def _wait_for_stop(stopping: Stopping, engine: Engine) -> None:
    """Wait for the request to stop; from then on `/readyz` is not ready, and streams end."""
    await stopping.asked.wait()
    engine.leave()


def _call(on_ready: Callable[[str], None] | None, url: str) -> None:
    # What is there by now stays: looking through all of it for garbage again and again would take a third of the time
    # that a busy server has for bulk submits.
    gc.collect()
    gc.freeze()
    if on_ready is not None:
        on_ready(url)


@asynccontextmanager
async def _open(settings: Settings, *, expecting: str | None = None) -> AsyncIterator[tuple[Engine, socket.socket]]:
    """Open the engine and a listening socket. InvalidSetting before binding if the API would be open without a key.

    Until the types of the app that it is `expecting` are declared, no job is accepted.
    """
    async with open_engine(settings) as engine:
        engine.catalog.expecting = expecting
        await refuse_unguarded(settings.server, engine.keys)
        async with declare_subscriptions(engine, os.environ):
            with listen(settings.server) as listener:
                yield engine, listener


class _Leaving:
    """The ASGI app; while the engine is leaving, every answer closes its connection."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app(scope, receive, self._closing(send) if self._engine.leaving else send)

    def _closing(self, send: Send) -> Send:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        return send_closing


@asynccontextmanager
async def _http(engine: Engine, listener: socket.socket) -> AsyncIterator[str]:
    """Answer requests while the body runs; then those that wait for something are let go."""

    async def let_go() -> None:
        engine.leave()
        await engine.broker.close()
        engine.schedule_version.close()

    async with answer(_Leaving(PageApp(create_app(engine)), engine), listener, engine, let_go) as url:
        yield url
