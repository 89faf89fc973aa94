"""The application: one place that finds operations, turns errors into problems and counts requests.

A key is judged before anything else of a request is: whoever may not ask learns nothing, not even what exists.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NoReturn, Protocol, TypeVar

from starlette.types import Receive, Scope, Send

from penstock.api import (
    batches,
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
from penstock.api.access import OriginCheck
from penstock.api.openapi import describing
from penstock.api.operation import Operation
from penstock.api.problems import MethodNotAllowed, problem_reply
from penstock.api.request import AnswerBroken, ApiReply, ApiRequest, ClientGone, refuse_query
from penstock.api.traffic import Traffic
from penstock.engine import Engine
from penstock.model.clock import Clock
from penstock.model.errors import CorruptObject, NotFound, PenstockError
from penstock.model.request_ids import name_request


class HasPath(Protocol):
    """Anything at a path; `{name}` stands for one whole segment that varies."""

    @property
    def path(self) -> str: ...


Place = TypeVar("Place", bound=HasPath)
Found = tuple[Place, Mapping[str, str]]


class Signposts(Generic[Place]):
    """The places by their paths, of which no two may be alike. A literal segment goes before a varying one."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._literal: dict[str, Place] = {}
        self._start: _Fork[Place] = _Fork()
        for place in places:
            if "{" in place.path:
                self._put_up(place)
            else:
                self._literal[place.path] = place

    def find(self, path: str) -> Found[Place] | None:
        """The place and the varying parts of its path; None if there is none."""
        place = self._literal.get(path)
        return (place, {}) if place is not None else _walk(self._start, path.split("/"), ())

    def _put_up(self, place: Place) -> None:
        fork, names = self._start, []
        for segment in place.path.split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                fork = fork.varied()
            else:
                fork = fork.literal.setdefault(segment, _Fork())
        fork.place = place, tuple(names)


class _Fork(Generic[Place]):
    """Where paths that begin alike part: by a literal segment, or a varying one; `place` is where it ends here."""

    __slots__ = ("literal", "place", "varying")

    def __init__(self) -> None:
        self.literal: dict[str, _Fork[Place]] = {}
        self.varying: _Fork[Place] | None = None
        self.place: tuple[Place, tuple[str, ...]] | None = None

    def varied(self) -> "_Fork[Place]":
        if self.varying is None:
            self.varying = _Fork()
        return self.varying


def _walk(fork: "_Fork[Place]", segments: list[str], parts: tuple[str, ...]) -> Found[Place] | None:
    """Follow the segments from a fork. Where the literal way leads nowhere, the varying one is tried."""
    if not segments:
        return None if fork.place is None else (fork.place[0], dict(zip(fork.place[1], parts, strict=True)))
    segment, *rest = segments
    literal = fork.literal.get(segment)
    if literal is not None and (found := _walk(literal, rest, parts)) is not None:
        return found
    return None if fork.varying is None or not segment else _walk(fork.varying, rest, (*parts, segment))


logger = logging.getLogger("penstock.api")
_debugs = logger.isEnabledFor

_DESCRIBED: tuple[Operation, ...] = (
    *jobs.OPERATIONS,
    *batches.OPERATIONS,
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


METRICS_OPERATIONS: tuple[Operation, ...] = (metrics.read_own_metrics, *health.OPERATIONS)
"""What a process answers that is no API: how it is."""


def create_app(engine: Engine, operations: Sequence[Operation] = OPERATIONS) -> "Api":
    """The API of this engine, or those of its operations, as an ASGI application."""
    traffic = Traffic()
    origins = None if engine.keys.required else OriginCheck(engine.settings.server.hosts)
    return Api(_places(operations, engine, traffic), engine.clock, traffic, origins)


class RoutePlace:
    """One path and the operations on it, by method; HEAD is served where GET is."""

    def __init__(self, path: str, operations: Iterable[Operation], engine: Engine, traffic: Traffic) -> None:
        self.path = path
        self._engine = engine
        self._traffic = traffic
        self._by_method = {operation.method: operation for operation in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]

    async def reply(self, scope: Scope, receive: Receive) -> ApiReply:
        """Judge the key, then run the operation that the method names."""
        operation = self._by_method.get(scope["method"])
        if operation is None:
            raise MethodNotAllowed(scope["method"], self.path, self._by_method)
        call = ApiRequest(self._engine, self._traffic, scope, receive)
        if operation.scopes:
            await call.admit(operation.scopes, always=operation.needs_key)
        if operation.query is None and scope["query_string"]:
            refuse_query(scope["query_string"])
        return await operation.run(call)


def _places(operations: Iterable[Operation], engine: Engine, traffic: Traffic) -> Sequence[RoutePlace]:
    """One place per path."""
    by_path: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_path[operation.path].append(operation)
    return [RoutePlace(path, found, engine, traffic) for path, found in by_path.items()]


class Api:
    """Every request comes in here. What goes wrong inside leaves as a problem; nothing leaves as a traceback."""

    def __init__(
        self, places: Iterable[RoutePlace], clock: Clock, traffic: Traffic, origins: OriginCheck | None
    ) -> None:
        served = tuple(places)
        self.paths = tuple(place.path for place in served)
        self._signposts = Signposts(served)
        self._clock = clock
        self._traffic = traffic
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers HTTP requests, not {scope['type']}")
        request, started, place, status = name_request(scope["headers"]), self._clock.monotonic(), None, 0
        try:
            if self._origins is not None:
                self._origins.check(scope)
            place, scope["path_params"] = self._signposts.find(scope["path"]) or _refuse_path(scope["path"])
            reply = await place.reply(scope, receive)
            await reply.send(send, request, headers_only=scope["method"] == "HEAD")
            status = reply.status
        except ClientGone:
            logger.debug("%s %s: the client hung up", scope["method"], scope["path"])
        except Exception as error:  # noqa: BLE001 — the outermost: logged and answered here
            status = await _answer_with_problem(error, scope, send, request)
        seconds = self._clock.monotonic() - started
        self._traffic.note(None if place is None else place.path, scope["method"], status, seconds)
        if _debugs(logging.DEBUG):
            logger.debug("%s %s %s in %.1f ms", scope["method"], scope["path"], status, seconds * 1000)


def _refuse_path(path: str) -> NoReturn:
    raise NotFound(f"there is nothing at {path}; /openapi.json lists what there is")


async def _answer_with_problem(error: Exception, scope: Scope, send: Send, request: bytes) -> int:
    """Log what is ours to mend, and answer. The status that went out."""
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
