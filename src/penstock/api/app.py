"""The application: every operation behind one gate, which alone turns errors into problems and counts requests.

A key is judged before anything else of a request is: whoever may not ask learns nothing, not even what exists.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api import (
    batch,
    files,
    fleets,
    health,
    jobs,
    keys,
    logs,
    metrics,
    queues,
    schedulers,
    schedules,
    shards,
    types,
    workers,
)
from penstock.api.exchange import Call, ClientGone
from penstock.api.metrics import Traffic
from penstock.api.openapi import describing
from penstock.api.operation import Operation
from penstock.api.origins import OriginCheck
from penstock.api.problems import MethodNotAllowed, problem_reply
from penstock.api.query import refuse_query
from penstock.api.signposts import Signposts
from penstock.engine import Engine
from penstock.model.errors import CorruptObject, PenstockError
from penstock.model.timing import Clock

logger = logging.getLogger("penstock.api")

_DESCRIBED: tuple[Operation, ...] = (
    *jobs.OPERATIONS,
    *batch.OPERATIONS,
    *workers.OPERATIONS,
    *logs.OPERATIONS,
    *files.OPERATIONS,
    *queues.OPERATIONS,
    *types.OPERATIONS,
    *schedules.OPERATIONS,
    *schedulers.OPERATIONS,
    *keys.OPERATIONS,
    *fleets.OPERATIONS,
    *shards.OPERATIONS,
    *health.OPERATIONS,
    *metrics.OPERATIONS,
)
OPERATIONS: tuple[Operation, ...] = (*_DESCRIBED, describing(_DESCRIBED))


def create_app(engine: Engine) -> Starlette:
    """The API of this engine. Routes and mounts may be added to it; they stand behind the same gate."""
    traffic = Traffic()
    places = _places(OPERATIONS, engine, traffic)
    app = Starlette(routes=[Route(place.path, place) for place in places])
    app.router.redirect_slashes = False
    # Starlette's own stack would wrap each request three times; the gate does all of it once.
    origins = None if engine.keys.required else OriginCheck(engine.settings.server.hosts)
    app.middleware_stack = Gate(Shortcut(places, app.router), engine.clock, traffic, origins)
    return app


class Place:
    """One path and the operations on it, by method; HEAD is served where GET is."""

    def __init__(self, path: str, operations: Iterable[Operation], engine: Engine, traffic: Traffic) -> None:
        self.path = path
        self._engine = engine
        self._traffic = traffic
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._by_method.get(scope["method"])
        if operation is None:
            raise MethodNotAllowed(scope["method"], self.path, self._by_method)
        call = Call(self._engine, self._traffic, scope, receive)
        if operation.scopes:
            await call.admit(operation.scopes, always=operation.needs_key)
        if operation.query is None and scope["query_string"]:
            refuse_query(scope["query_string"])
        reply = await operation.run(call)
        await reply.send(send, headers_only=scope["method"] == "HEAD")


def _places(operations: Iterable[Operation], engine: Engine, traffic: Traffic) -> Sequence[Place]:
    """One place per path; literal ones first, so that /v1/jobs/batch is no job's id."""
    by_path: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_path[operation.path].append(operation)
    literal_first = sorted(by_path, key=lambda path: "{" in path)
    return [Place(path, by_path[path], engine, traffic) for path in literal_first]


class Shortcut:
    """Straight to the places of the API; what is not found there is left to the router, which tries its routes."""

    def __init__(self, places: Iterable[Place], router: ASGIApp) -> None:
        self._signposts = Signposts(places)
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._signposts.find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._router(scope, receive, send)
        else:
            scope["endpoint"], scope["path_params"] = found
            await scope["endpoint"](scope, receive, send)


class Gate:
    """The only layer around the routes. What goes wrong inside leaves as a problem; nothing leaves as a traceback."""

    def __init__(self, inside: ASGIApp, clock: Clock, traffic: Traffic, origins: OriginCheck | None) -> None:
        self._inside = inside
        self._clock = clock
        self._traffic = traffic
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        started = self._clock.monotonic()
        outlet = Outlet(send)
        try:
            if self._origins is not None:
                self._origins.check(scope)
            await self._inside(scope, receive, outlet)
        except ClientGone:
            logger.debug("%s %s: the client hung up", scope["method"], scope["path"])
        except Exception as error:  # noqa: BLE001 — the outermost: logged and answered here
            await _answer_with_problem(error, scope, outlet)
        self._note(scope, outlet, self._clock.monotonic() - started)

    def _note(self, scope: Scope, outlet: "Outlet", seconds: float) -> None:
        endpoint = scope.get("endpoint")
        path = endpoint.path if isinstance(endpoint, Place) else None
        self._traffic.note(path, scope["method"], outlet.status, seconds)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s %s %s in %.1f ms", scope["method"], scope["path"], outlet.status, seconds * 1000)


class Outlet:
    """`send`, remembering the status that went out; 0 while none has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)


async def _answer_with_problem(error: Exception, scope: Scope, outlet: Outlet) -> None:
    if _unexpected(error):
        logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    elif isinstance(error, CorruptObject):
        logger.error("%s %s: %s", scope["method"], scope["path"], error)
    if outlet.status:
        # Too late for another answer. Returning with the body unfinished makes the server drop the connection,
        # so that the client cannot take the part for the whole.
        return
    reply = problem_reply(error, scope["path"])
    await reply.send(outlet, headers_only=scope["method"] == "HEAD")


def _unexpected(error: Exception) -> bool:
    return not isinstance(error, (PenstockError, HTTPException))
