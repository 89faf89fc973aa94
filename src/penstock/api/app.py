"""The ASGI application: finds the operation of a request, turns errors into problems and counts requests.

The key is checked before anything else of a request: without permission a client learns nothing, not even what exists.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NoReturn, Protocol, TypeVar

from starlette.types import Receive, Scope, Send

from penstock.api import (
    batches,
    events,
    files,
    fleets,
    health,
    history,
    jobs,
    keys,
    live,
    logs,
    metrics,
    queues,
    schedulers,
    schedules,
    sessions,
    shards,
    subscriptions,
    types,
    workers,
)
from penstock.api.access import OriginCheck
from penstock.api.exposition import Traffic
from penstock.api.openapi import describe_api
from penstock.api.operation import Operation
from penstock.api.problems import MethodNotAllowed, problem_reply
from penstock.api.request import AnswerBroken, AnyReply, ApiRequest, ClientGone, refuse_query
from penstock.engine import Engine
from penstock.events.live import LiveFeed
from penstock.events.sinks import connect_sinks
from penstock.events.streams import Streams
from penstock.model.clock import Clock
from penstock.model.errors import CorruptObject, NotFound, PenstockError
from penstock.model.request_ids import name_request


class HasPath(Protocol):
    """Anything at a path; `{name}` stands for one whole segment that varies."""

    @property
    def path(self) -> str: ...


Routed = TypeVar("Routed", bound=HasPath)
Found = tuple[Routed, Mapping[str, str]]


class RouteTree(Generic[Routed]):
    """Routes by their paths, each of which may occur once. A literal segment is preferred to a varying one."""

    def __init__(self, routes: Iterable[Routed]) -> None:
        self._literal: dict[str, Routed] = {}
        self._start: _RouteNode[Routed] = _RouteNode()
        for route in routes:
            if "{" in route.path:
                self._add(route)
            else:
                self._literal[route.path] = route

    def find(self, path: str) -> Found[Routed] | None:
        """The route of this path and the values of its varying segments; None if there is none."""
        route = self._literal.get(path)
        return (route, {}) if route is not None else _walk(self._start, path.split("/"), ())

    def _add(self, route: Routed) -> None:
        node, names = self._start, []
        for segment in route.path.split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node = node.add_variable()
            else:
                node = node.literal.setdefault(segment, _RouteNode())
        node.route = route, tuple(names)


class _RouteNode(Generic[Routed]):
    """A prefix of paths: the nodes after it by their next segment, and the `route` that ends here."""

    __slots__ = ("literal", "route", "varying")

    def __init__(self) -> None:
        self.literal: dict[str, _RouteNode[Routed]] = {}
        self.varying: _RouteNode[Routed] | None = None
        self.route: tuple[Routed, tuple[str, ...]] | None = None

    def add_variable(self) -> "_RouteNode[Routed]":
        if self.varying is None:
            self.varying = _RouteNode()
        return self.varying


def _walk(node: "_RouteNode[Routed]", segments: list[str], parts: tuple[str, ...]) -> Found[Routed] | None:
    """Follow the segments from a node. If the literal branch has no match, the varying one is tried."""
    if not segments:
        return None if node.route is None else (node.route[0], dict(zip(node.route[1], parts, strict=True)))
    segment, *rest = segments
    literal = node.literal.get(segment)
    if literal is not None and (found := _walk(literal, rest, parts)) is not None:
        return found
    return None if node.varying is None or not segment else _walk(node.varying, rest, (*parts, segment))


logger = logging.getLogger("penstock.api")
_debugs = logger.isEnabledFor

_DESCRIBED: tuple[Operation, ...] = (
    *jobs.OPERATIONS,
    *batches.OPERATIONS,
    *workers.OPERATIONS,
    *logs.OPERATIONS,
    *events.OPERATIONS,
    *files.OPERATIONS,
    *queues.OPERATIONS,
    *types.OPERATIONS,
    *schedules.OPERATIONS,
    *schedulers.OPERATIONS,
    *keys.OPERATIONS,
    *sessions.OPERATIONS,
    *fleets.OPERATIONS,
    *shards.OPERATIONS,
    *history.OPERATIONS,
    *live.OPERATIONS,
    *subscriptions.OPERATIONS,
    *health.OPERATIONS,
    *metrics.OPERATIONS,
)
OPERATIONS: tuple[Operation, ...] = (*_DESCRIBED, describe_api(_DESCRIBED))


METRICS_OPERATIONS: tuple[Operation, ...] = (metrics.read_own_metrics, *health.OPERATIONS)
"""What a process that is no API answers: its health and metrics."""


def create_app(
    engine: Engine,
    operations: Sequence[Operation] = OPERATIONS,
    streams: Streams | None = None,
    live: LiveFeed | None = None,
) -> "Api":
    """The API of this engine, or those of its operations, as an ASGI application."""
    traffic, opened, feed = Traffic(), streams or Streams(engine), live or LiveFeed(engine)
    connect_sinks(engine)
    origins = None if engine.keys.required else OriginCheck(engine.settings.server.hosts)
    routes = _routes(operations, lambda scope, receive: ApiRequest(engine, traffic, opened, feed, scope, receive))
    return Api(routes, engine.clock, traffic, origins)


MakeRequest = Callable[[Scope, Receive], ApiRequest]


class Route:
    """One path and the operations on it, by method; HEAD is served where GET is."""

    def __init__(self, path: str, operations: Iterable[Operation], make_request: MakeRequest) -> None:
        self.path = path
        self._make_request = make_request
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]

    async def reply(self, scope: Scope, receive: Receive) -> AnyReply:
        """Check the key, then run the operation of the method."""
        operation = self._by_method.get(scope["method"])
        if operation is None:
            raise MethodNotAllowed(scope["method"], self.path, self._by_method)
        call = self._make_request(scope, receive)
        if operation.scopes:
            await call.admit(operation.scopes, always=operation.needs_key)
        if operation.query is None and scope["query_string"]:
            refuse_query(scope["query_string"])
        return await operation.run(call)


def _routes(operations: Iterable[Operation], make_request: MakeRequest) -> Sequence[Route]:
    """One route per path."""
    by_path: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_path[operation.path].append(operation)
    return [Route(path, found, make_request) for path, found in by_path.items()]


class Api:
    """Answers every request. Every error is answered as a problem, never as a traceback."""

    def __init__(self, routes: Iterable[Route], clock: Clock, traffic: Traffic, origins: OriginCheck | None) -> None:
        served = tuple(routes)
        self.paths = tuple(route.path for route in served)
        self._tree = RouteTree(served)
        self._clock = clock
        self._traffic = traffic
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers HTTP requests, not {scope['type']}")
        request, started, route, status = name_request(scope["headers"]), self._clock.monotonic(), None, 0
        is_timed = True
        try:
            if self._origins is not None:
                self._origins.check(scope)
            route, scope["path_params"] = self._tree.find(scope["path"]) or _refuse_path(scope["path"])
            reply = await route.reply(scope, receive)
            is_timed = reply.is_timed
            await reply.send(send, request, headers_only=scope["method"] == "HEAD")
            status = reply.status
        except ClientGone:
            logger.debug("%s %s: the client hung up", scope["method"], scope["path"])
        except Exception as error:  # noqa: BLE001 — the outermost: logged and answered here
            status = await _answer_with_problem(error, scope, send, request)
        seconds = self._clock.monotonic() - started
        self._traffic.note(
            None if route is None else route.path, scope["method"], status, seconds if is_timed else None
        )
        if _debugs(logging.DEBUG):
            logger.debug("%s %s %s in %.1f ms", scope["method"], scope["path"], status, seconds * 1000)


def _refuse_path(path: str) -> NoReturn:
    raise NotFound(f"there is nothing at {path}; /openapi.json lists what there is")


async def _answer_with_problem(error: Exception, scope: Scope, send: Send, request: bytes) -> int:
    """Log a fault of the server, and answer with a problem; returns the status that was sent."""
    cause = error.__cause__ if isinstance(error, AnswerBroken) else error
    if not isinstance(cause, PenstockError):
        logger.error("%s %s failed", scope["method"], scope["path"], exc_info=cause)
    elif isinstance(cause, CorruptObject):
        logger.error("%s %s: %s", scope["method"], scope["path"], cause)
    if isinstance(error, AnswerBroken):
        # Too late for another answer. Returning with the body unfinished makes the server drop the connection,
        # so that the client cannot take the part for the whole.
        return error.status
    reply = problem_reply(error, scope["path"])
    await reply.send(send, request, headers_only=scope["method"] == "HEAD")
    return reply.status
