"""`penstock up`: the API, the services and a worker, from one command."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from penstock.api import create_app
from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting
from penstock.model.timing import seconds
from penstock.runtime.embedded import open_engine
from penstock.runtime.schedulers import ticking
from penstock.runtime.stopping import Stopping
from penstock.runtime.workers import WorkerProcess
from penstock.scheduler import Dispatcher, Pruner, Reaper, Ticker, run_service

logger = logging.getLogger("penstock.server")

BACKLOG = 2048
LAST_ANSWERS_SECONDS = 2
"""How long open requests may take once everything else has stopped."""


async def up(
    settings: Settings, app: str | None, *, workers: bool = True, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; then drain the worker, answer what is open, and return.

    `on_ready` is called with the URL once requests are answered and the worker, if any, has declared its types.
    """
    stopping = Stopping()
    stopping.listen()
    with _listen(settings.server) as listener:
        async with open_engine(settings) as engine, _services(engine), _http(engine, listener) as url:
            if app is None or not workers:
                _call(on_ready, url)
                await stopping.asked.wait()
            else:
                async with WorkerProcess(app, url, settings.worker, stopping) as worker:
                    await worker.joined(engine.queues.workers)
                    _call(on_ready, url)
                    await worker.supervise()


def _call(on_ready: Callable[[str], None] | None, url: str) -> None:
    if on_ready is not None:
        on_ready(url)


@contextmanager
def _listen(server: ServerSettings) -> Iterator[socket.socket]:
    """A listening socket, so that a taken port is known before anything else starts."""
    _refuse_open_address(server.host)
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


def _refuse_open_address(host: str) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidSetting(
            f"server.host: {host!r} is not a loopback address, and this version has no API keys to protect it with; "
            "listen on 127.0.0.1 and put a proxy that authenticates in front"
        )


@asynccontextmanager
async def _services(engine: Engine) -> AsyncIterator[None]:
    """Tick (unless others do), dispatch, reap and prune while the body runs."""
    settings = engine.settings
    ticker = Ticker(engine.ticks, seconds(settings.timing.slot_seconds), engine.clock)
    dispatcher = run_service("dispatcher", Dispatcher(engine).step, engine.tickets.wake)
    reaper, pruner = run_service("reaper", Reaper(engine).step), run_service("pruner", Pruner(engine).step)
    loops = [dispatcher, reaper, pruner, *(ticking(ticker) if settings.server.scheduler else ())]
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _http(engine: Engine, listener: socket.socket) -> AsyncIterator[str]:
    """Answer requests while the body runs."""
    config = uvicorn.Config(
        create_app(engine),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS_SECONDS,
        server_header=False,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await engine.broker.close()
        engine.changes.close()
        server.should_exit = True
        await serving
