"""The process of a function: one event loop, and the engine, opened by the first invocation and kept for all others.

Between invocations the process stands still. So whatever an invocation has begun is finished before it answers.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api.app import create_app
from penstock.api.operation import Operation
from penstock.api.problems import PROBLEM_JSON, problem_reply
from penstock.backends import check_shared, open_engine
from penstock.config import Settings, load
from penstock.engine import Engine
from penstock.functions.routes import RefusedLive, RefusedStreams, only
from penstock.functions.wake_ups import Arrivals, WakeUpQueue
from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.model.request_ids import name_request
from penstock.orchestrator import ShardedStore

if TYPE_CHECKING:
    from mangum import Mangum

logger = logging.getLogger("penstock.functions")

LONGEST_WAIT: Final = 25.0
"""Seconds: an HTTP API gives up after 30."""
LOOK_INTERVAL: Final = 5.0
"""Seconds between two looks at the shards, while there are invocations."""
FINISH_SECONDS: Final = 0.5
"""How long an invocation waits for what it has begun in the background."""
TEXTS: Final = ("text/", "application/json", PROBLEM_JSON)
"""Content types that are passed on as they are; others as Base64."""

T = TypeVar("T")


class StillClock(SystemClock):
    """A clock by which nothing happens in the background: a sleep lasts until it is cancelled.

    What was on its way to a shard while the process stood still would look like a shard that does not answer.
    """

    async def sleep(self, span: timedelta) -> None:
        await asyncio.Event().wait()


class Kept(Protocol):
    """What a process keeps between invocations."""

    async def close(self) -> None: ...


K = TypeVar("K", bound=Kept)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings of a function: those of the environment, with keys required and waits that end in time.

    InvalidSetting unless store and broker are shared ones: a function's own memory and disk are nobody else's.
    """
    settings = load(None, environ, {})
    check_shared(settings, "functions")
    limits = replace(settings.limits, wait_seconds=min(settings.limits.wait_seconds, LONGEST_WAIT))
    return replace(settings, server=replace(settings.server, keys="required"), limits=limits)


class FunctionHost:
    """What the invocations of one process share."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._undo = AsyncExitStack()
        self._engine: Engine | None = None
        self._adapters: dict[str, Mangum] = {}
        self._kept: dict[type[Kept], Kept] = {}
        self._standing: frozenset[asyncio.Task[Any]] = frozenset()
        self._looked_at = 0.0
        self.wake_ups: WakeUpQueue | None = None

    def answer(self, name: str, served: Collection[Operation], event: dict[str, Any], context: Any) -> dict[str, Any]:
        """The answer to a request in payload format 2.0, for those operations of the API that are `served`."""
        from mangum import Mangum

        asyncio.set_event_loop(self._loop)
        if name not in self._adapters:
            app = FunctionApp(self, name, served)
            self._adapters[name] = Mangum(app, lifespan="off", text_mime_types=list(TEXTS))
        return self._adapters[name](event, context)

    def run(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Do the work with the engine, and send what it has published."""
        return self._loop.run_until_complete(self._run(work))

    def keep(self, kind: type[K], make: Callable[[], K]) -> K:
        """The one object of this kind, made at its first use: what a service knows between its steps."""
        found = self._kept.get(kind)
        if not isinstance(found, kind):
            found = self._kept[kind] = make()
        return found

    async def open(self) -> Engine:
        """The engine; Unavailable while it cannot be opened, which every invocation tries again."""
        if self._engine is None:
            self._engine = await self._open()
            self._standing = frozenset(asyncio.all_tasks())
            self._looked_at = self._engine.clock.monotonic()
        return self._engine

    async def look_after(self, engine: Engine) -> None:
        """Probe the shards and follow their map, beside an invocation, if that was not done for a while."""
        now = engine.clock.monotonic()
        if isinstance(engine.store, ShardedStore) and now - self._looked_at >= LOOK_INTERVAL:
            self._looked_at = now
            await engine.store.look_after()

    async def finish(self, engine: Engine) -> None:
        """Wait for everything that an invocation has begun and nobody awaits: tickets, signals, counts."""
        await engine.flush()
        begun = asyncio.all_tasks() - self._standing - {asyncio.current_task()}
        if begun:
            await asyncio.wait(begun, timeout=FINISH_SECONDS)

    def open_early(self) -> None:
        """Open the engine before the first invocation; one that cannot be opened yet is tried again by each."""
        try:
            self._loop.run_until_complete(self.open())
        except PenstockError as error:
            logger.warning("the engine is not open yet: %s", error.message)

    def close(self) -> None:
        """Close the engine and the loop."""
        self._loop.run_until_complete(self._close())
        self._loop.close()
        asyncio.set_event_loop(None)

    async def _close(self) -> None:
        for kept in self._kept.values():
            await kept.close()
        await self._undo.aclose()

    async def _open(self) -> Engine:
        async with AsyncExitStack() as undo:
            # Copies of a process that is restored from one snapshot would all draw the same numbers from a seed.
            opening = open_engine(self._settings, random.SystemRandom(), StillClock(), probe_objects=False)
            engine = await undo.enter_async_context(opening)
            engine.signals.send_promptly()
            if self._settings.functions.wake_queue:
                self.wake_ups = WakeUpQueue(engine.store, engine.clock, self._settings.functions.wake_queue)
                undo.push_async_callback(self.wake_ups.close)
            self._undo = undo.pop_all()
            return engine

    async def _run(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        engine = await self.open()
        try:
            answer, _ = await asyncio.gather(work(engine), self.look_after(engine))
            return answer
        finally:
            await self.finish(engine)


class FunctionApp:
    """The ASGI application of one function."""

    def __init__(self, host: FunctionHost, name: str, served: Collection[Operation]) -> None:
        self._host = host
        self._operations = only(name, served)
        self._api: ASGIApp | None = None
        self._arrivals = Arrivals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            api = self._api or await self._create()
        except PenstockError as error:
            await problem_reply(error, scope["path"]).send(send, name_request(scope["headers"]))
            return
        engine = await self._host.open()
        await asyncio.gather(api(scope, receive, send), self._host.look_after(engine))
        await self._host.finish(engine)
        if self._host.wake_ups is not None:
            await self._host.wake_ups.request(self._arrivals.take(engine.clock.now()))

    async def _create(self) -> ASGIApp:
        engine = await self._host.open()
        engine.signals.arrivals.subscribe(self._arrivals.note)
        self._api = create_app(engine, self._operations, RefusedStreams(engine), RefusedLive(engine))
        return self._api


def host_of_environment() -> FunctionHost:
    """The host of this process; InvalidSetting names what is wrong in its environment."""
    return FunctionHost(read_settings(os.environ))
