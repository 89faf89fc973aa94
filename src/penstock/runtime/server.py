"""Servers: `penstock up`, everything from one command; `penstock api`, one of several behind a load balancer."""

import asyncio
import gc
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import cast

import uvicorn
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api import create_app
from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting
from penstock.model.keys import KeyScope
from penstock.model.timing import seconds, within
from penstock.runtime.backends import check_shared, data_folder, open_engine
from penstock.runtime.connection import HEAD_BYTES, HttpConnection, HttpServer
from penstock.runtime.guard import refuse_unguarded
from penstock.runtime.leaving import turn_away
from penstock.runtime.scaling import local_fleets
from penstock.runtime.services import hearing, running, services
from penstock.runtime.stopping import Stopping
from penstock.runtime.worker_key import kept_token

logger = logging.getLogger("penstock.server")

BACKLOG = 2048
BESIDE = (
    KeyScope.WORKER,
    KeyScope.SCHEDULES,
    KeyScope.JOBS_READ,
    KeyScope.JOBS_WRITE,
    KeyScope.JOBS_CANCEL,
    KeyScope.QUEUES,
)
"""What a worker beside the server does there: it works, brings its app's schedules, and its handlers use the SDK."""
OTHER_FILES = 150
"""Open files that are not connections, and connections that are turned away."""

LEAVE_WITHIN = seconds(1.0)
"""How long an API goes on answering after it was asked to stop."""

TURN_AWAY_WITHIN = seconds(0.25)
"""How long it then takes no new connections and answers those it has."""

LAST_ANSWERS_SECONDS = 2
"""How long open requests may take once everything else has stopped."""


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
        _opened(settings, expecting=app if workers else None) as (engine, listener),
        services(engine, ticker=settings.server.scheduler),
        _http(engine, listener) as url,
    ):
        if app is None or not workers:
            _call(on_ready, url)
            await _asked_to_stop(stopping, engine)
        else:
            # A key of its own: whatever PENSTOCK_KEY says is about other servers.
            with kept_token(data_folder(settings), partial(engine.keys.lend, "worker", BESIDE)) as token:
                own = replace(settings, worker=replace(settings.worker, key=token))
                async with local_fleets(engine, own, app, url, stopping):
                    _call(on_ready, url)
                    await _asked_to_stop(stopping, engine)


async def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Answer requests until SIGINT or SIGTERM, and sweep nothing: schedulers do. Any number may run.

    Asked to stop, it goes on answering for a moment and asks each client to come back on another connection, so that
    a load balancer sends them elsewhere and no request fails.
    """
    check_shared(settings, "api")
    stopping = Stopping()
    stopping.listen()
    async with (
        _opened(settings) as (engine, listener),
        running(hearing(engine)),
        _http(engine, listener) as url,
    ):
        _call(on_ready, url)
        await _asked_to_stop(stopping, engine)
        await within(LEAVE_WITHIN, stopping.urgent.wait())
        turn_away(listener)
        await within(TURN_AWAY_WITHIN, stopping.urgent.wait())


async def _asked_to_stop(stopping: Stopping, engine: Engine) -> None:
    """Return when it is; from then on `/readyz` sends traffic elsewhere."""
    await stopping.asked.wait()
    engine.leaving = True


def _call(on_ready: Callable[[str], None] | None, url: str) -> None:
    # What is there by now stays: looking through all of it for garbage again and again would take a third of the time
    # that a busy server has for bulk submits.
    gc.collect()
    gc.freeze()
    if on_ready is not None:
        on_ready(url)


@asynccontextmanager
async def _opened(settings: Settings, *, expecting: str | None = None) -> AsyncIterator[tuple[Engine, socket.socket]]:
    """The engine and a listening socket; refused before it is bound where anyone could reach it without a key.

    Until the types of the app that it is `expecting` are declared, no job is accepted.
    """
    async with open_engine(settings) as engine:
        engine.catalog.expecting = expecting
        await refuse_unguarded(settings.server, engine.keys)
        with _listen(settings.server) as listener:
            yield engine, listener


@contextmanager
def _listen(server: ServerSettings) -> Iterator[socket.socket]:
    """A listening socket, so that a taken port is known before anything else starts."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on sockets that say they are TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((server.host, server.port))
        except OSError as fault:
            raise InvalidSetting(
                f"server.port: cannot listen on {server.host}:{server.port} ({fault.strerror}); "
                "stop what runs there, or choose another with --port (0 takes a free one)"
            ) from fault
        # From here on the kernel takes connections, so that whoever is told of the URL can use it.
        listener.listen(BACKLOG)
        yield listener


class _Leaving:
    """The app; while the engine is leaving, every answer asks for another connection."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app(scope, receive, self._closing(send) if self._engine.leaving else send)

    def _closing(self, send: Send) -> Send:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        return closing


def _most_connections(server: ServerSettings) -> int:
    """As many as the settings say, or as the process may have files open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return server.connections if files < 0 else max(1, min(server.connections, files - OTHER_FILES))


@asynccontextmanager
async def _http(engine: Engine, listener: socket.socket) -> AsyncIterator[str]:
    """Answer requests while the body runs."""
    config = uvicorn.Config(
        _Leaving(create_app(engine), engine),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS_SECONDS,
        server_header=False,
        proxy_headers=False,
        http=cast(type[asyncio.Protocol], partial(HttpConnection, most=_most_connections(engine.settings.server))),
        h11_max_incomplete_event_size=HEAD_BYTES,
        # An upgraded connection would be one without bounds.
        ws="none",
        interface="asgi3",
    )
    server = HttpServer(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await engine.broker.close()
        engine.changes.close()
        server.should_exit = True
        await serving
