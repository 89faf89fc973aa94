"""Listening sockets and the HTTP server on them: for APIs, and for the metrics of other processes."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from penstock.config import ServerSettings
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting
from penstock.runtime.tcp import HEAD_BYTES, HttpConnection, HttpServer

BACKLOG = 2048
OTHER_FILES = 150
"""Open files reserved for other purposes than accepted connections."""

LAST_ANSWERS_SECONDS = 2
"""How long open requests may take once everything else has stopped."""

TRY_ANOTHER_PORT = "server.port", "choose another with --port (0 takes a free one)"


@contextmanager
def listen(server: ServerSettings, blame: tuple[str, str] = TRY_ANOTHER_PORT) -> Iterator[socket.socket]:
    """A listening socket, so that a taken port is known before anything else starts.

    `blame` is the setting that InvalidSetting names, and its remedy.
    """
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only on sockets that say they are TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((server.host, server.port))
        except OSError as error:
            setting, remedy = blame
            raise InvalidSetting(
                f"{setting}: cannot listen on {server.host}:{server.port} ({error.strerror}); "
                f"stop what runs there, or {remedy}"
            ) from error
        # From here on the kernel accepts connections, so the URL can be announced.
        listener.listen(BACKLOG)
        yield listener


@asynccontextmanager
async def answer(
    app: ASGIApp, listener: socket.socket, engine: Engine, let_go: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[str]:
    """Serve requests while the body runs; then `let_go` ends the waits of open ones. Yields the URL."""
    most = _most_connections(engine.settings.server)
    server = HttpServer(_config(app, most))
    engine.meters.connections, engine.meters.connections_max = lambda: len(server.server_state.connections), most
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        if let_go is not None:
            await let_go()
        server.should_exit = True
        await serving


def _config(app: ASGIApp, most: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS_SECONDS,
        server_header=False,
        proxy_headers=False,
        http=cast(type[asyncio.Protocol], partial(HttpConnection, most=most)),
        h11_max_incomplete_event_size=HEAD_BYTES,
        # An upgraded connection would have no bounds.
        ws="none",
        interface="asgi3",
    )


def _most_connections(server: ServerSettings) -> int:
    """As many as the settings say, or as the process may have files open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return server.connections if files < 0 else max(1, min(server.connections, files - OTHER_FILES))
