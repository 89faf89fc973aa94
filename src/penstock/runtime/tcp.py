"""Connections that hold a bounded amount for a bounded time, before any API key is looked at.

uvicorn bounds neither a request's head nor how long it may take, nor how many connections there are. Here the head, a
body's pace, an answer's pace and the number of connections are bounded; a body's length is the API's business.
"""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.api.problems import PROBLEM_JSON, HeadTooLarge, problem_of, problem_reply
from penstock.model.errors import Malformed, PenstockError, RequestTimeout, ServerBusy
from penstock.model.request_ids import name_request

HELD_BYTES = 64 * 1024
"""More than this is not held back: the transport must see it to slow the writer down."""


class Corked:
    """A transport that gathers what is written in one turn of the event loop, and writes it at the turn's end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self._call_soon = asyncio.get_running_loop().call_soon
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._call_soon(self._uncork)
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD_BYTES:
            self._uncork()

    def close(self) -> None:
        self._uncork()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)

    def _uncork(self) -> None:
        held, self._held, self._size = self._held, [], 0
        # The client may have gone since it was written.
        if held and not self.is_closing():
            self._transport.write(b"".join(held))


KIB = 1024

HEAD_BYTES = 64 * KIB
"""Most bytes of a request in a row that are not its body: its head, or what surrounds the chunks of a body."""

AHEAD_BYTES = 8 * KIB
"""Most bytes of further requests that a client may send before it has its answer."""

PIECE_BYTES = 8 * KIB
"""What is parsed at a time, so that a bound is passed by this much at most."""

HEAD_SECONDS = 20.0
"""How long a head may take, from the connection or from its first byte."""

BODY_SECONDS = 30.0
BODY_STEP_BYTES = 16 * KIB
"""In every span of BODY_SECONDS a body must bring this much, or its end. How long all of it takes does not matter."""

ANSWER_SECONDS = 60.0
"""How long a client may take nothing of an answer that waits for it."""

SURPLUS = 100
"""So many connections beyond the bound are told so; any more are closed without a word."""

HEALTH = "/healthz"


class BoundedConnection(asyncio.Protocol):
    """What both of uvicorn's protocols lack. `most` bounds the connections of the process; 0 is no bound."""

    app: Any
    cycle: Any
    transport: Any
    flow: Any
    connections: set[Any]
    loop: asyncio.AbstractEventLoop
    timeout_keep_alive_task: asyncio.TimerHandle | None
    timeout_keep_alive: int
    pipeline: Any = ()

    def __init__(self, *, most: int = 0, **given: Any) -> None:
        super().__init__(**given)
        self._most = most
        self._received = 0
        self._ahead = 0
        self._head_since = 0.0
        self._idle_since: float | None = None
        self._not_body = 0
        self._body = RequestProgress()
        self._answer = RequestProgress()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(Corked(cast(asyncio.Transport, transport)))  # type: ignore[arg-type]
        self._head_since = asyncio.get_running_loop().time()
        surplus = len(self.connections) - self._most if self._most else 0
        if surplus > SURPLUS:
            self.transport.abort()
        elif surplus > 0:
            self.app = partial(turn_away, self.app)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._idle_since is not None or self.timeout_keep_alive_task is not None:
            self._idle_since, self._head_since = None, self.loop.time()
        for piece in (data,) if len(data) <= PIECE_BYTES else _pieces(data):
            if self.cycle is not None and not self.cycle.response_complete:
                self._count_ahead(len(piece))
            else:
                self._ahead = 0
            self._not_body += len(piece)
            if not self.transport.is_closing():
                super().data_received(piece)
            if self._not_body > HEAD_BYTES and not self.transport.is_closing():
                self.refuse(_head_too_large())

    def _count_ahead(self, size: int) -> None:
        """Close the connection of a client that sends one request after the other and waits for no answer."""
        if not self.cycle.more_body:
            self._ahead += size
            if self._ahead > AHEAD_BYTES:
                self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what it cannot parse; h11 says so too of a head that is too long."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", HTTPStatus.BAD_REQUEST)
        too_long = hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self.refuse(_head_too_large() if too_long else Malformed("this is not HTTP/1.1"))

    def refuse(self, error: PenstockError) -> None:
        """Answer with a problem if no other answer has begun, and close."""
        if self.pipeline or _answering(self.cycle):
            self.transport.abort()
        else:
            self.transport.write(_raw(error))
            self.transport.close()

    def end_if_overdue(self, now: float) -> None:
        """Close the connection if its client is too slow; see `end_overdue`."""
        unsent = self.transport.get_write_buffer_size()
        if self._answer.still_for(unsent, 1, now) > ANSWER_SECONDS and unsent:
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._idle_since is not None:
            self._body.reset()
            if now - self._idle_since > self.timeout_keep_alive:
                self.transport.close()
        elif self._awaits_head():
            self._body.reset()
            if now - self._head_since > HEAD_SECONDS:
                self._end_unfinished()
        elif not self._awaits_body():
            self._body.reset()
        elif self._body.still_for(self._received, BODY_STEP_BYTES, now) > BODY_SECONDS:
            self._end_unfinished()

    def _awaits_head(self) -> bool:
        """Whether a head is due. A connection that was used before and is idle has a deadline of its own."""
        between = self.cycle is None or self.cycle.response_complete
        return between and self.timeout_keep_alive_task is None

    def _awaits_body(self) -> bool:
        """Whether the client could send more of a body now: it was not asked to pause, or to wait until it is asked."""
        cycle = self.cycle
        return cycle.more_body and not (
            cycle.response_complete or cycle.waiting_for_100_continue or self.flow.read_paused
        )

    def _end_unfinished(self) -> None:
        if self._received:
            self.refuse(RequestTimeout("the rest of the request did not come in time; send it again"))
        else:
            self.transport.close()


class RequestProgress:
    """How far something has come, and since when it has not moved."""

    def __init__(self) -> None:
        self._mark: int | None = None
        self._since = 0.0

    def still_for(self, mark: int, step: int, now: float) -> float:
        """For how many seconds it has moved by less than `step`, as far as was seen."""
        if self._mark is None or abs(mark - self._mark) >= step:
            self._mark, self._since = mark, now
        return now - self._since

    def reset(self) -> None:
        self._mark = None


class H11Connection(BoundedConnection, H11Protocol):
    """Over h11, which bounds what it keeps by itself; see `send_400_response`."""

    def handle_events(self) -> None:
        self._not_body = 0
        super().handle_events()


HttpConnection: type[BoundedConnection]
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    HttpConnection = H11Connection
else:

    class HttpToolsConnection(BoundedConnection, HttpToolsProtocol):
        """Over httptools, which keeps all of a head, and of what follows the last chunk of a body."""

        # The callbacks of the parser name their base: `super()` takes as long as the rest of them.

        def on_response_complete(self) -> None:
            """Note that the connection is idle: `end_if_overdue` closes it. uvicorn has a timer for each request."""
            if self.pipeline or self.transport.is_closing():
                super().on_response_complete()
                return
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            self._idle_since = self.loop.time()

        def on_headers_complete(self) -> None:
            self._not_body = 0
            HttpToolsProtocol.on_headers_complete(self)

        def on_body(self, body: bytes) -> None:
            self._not_body = 0
            HttpToolsProtocol.on_body(self, body)

        def on_message_complete(self) -> None:
            self._not_body = 0
            HttpToolsProtocol.on_message_complete(self)

    HttpConnection = HttpToolsConnection


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, as the process has its own, and with deadlines for slow clients."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if counter % 10 == 0:
            end_overdue(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


def end_overdue(connections: Iterable[Any], now: float) -> None:
    """Close the connections whose clients are too slow. To be called about every second, with the loop's time."""
    for connection in list(connections):
        connection.end_if_overdue(now)


async def turn_away(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, instead of the app, on a connection that is one too many; but say that the process is alive."""
    if scope["path"] == HEALTH:
        await app(scope, receive, send)
        return
    reply = problem_reply(
        ServerBusy("this server has as many connections as it may (server.connections)"), scope["path"]
    )
    await msgspec.structs.replace(reply, headers=(*reply.headers, (b"connection", b"close"))).send(
        send, name_request(scope["headers"])
    )


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


def _answering(cycle: Any) -> bool:
    return cycle is not None and cycle.response_started and not cycle.response_complete


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the head of a request may have at most {HEAD_BYTES:,} bytes")


def _raw(error: PenstockError) -> bytes:
    """A problem as the bytes of an answer that ends the connection."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    lines = (
        f"HTTP/1.1 {problem.status} {problem.title}",
        f"content-type: {PROBLEM_JSON}",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


SO_ATTACH_FILTER = 26
"""Of Linux; Python does not name it."""

TCP_FLAGS = 13
SYN = 0x02
_LOAD_BYTE, _JUMP_IF_SET, _RETURN = 0x30, 0x45, 0x06
_DROP, _PASS = 0, 0xFFFFFFFF

_PROGRAM = b"".join(
    struct.pack("HBBI", code, if_so, if_not, value)
    for code, if_so, if_not, value in (
        (_LOAD_BYTE, 0, 0, TCP_FLAGS),
        (_JUMP_IF_SET, 0, 1, SYN),
        (_RETURN, 0, 0, _DROP),
        (_RETURN, 0, 0, _PASS),
    )
)


def refuse_new_connections(listener: socket.socket) -> None:
    """Let the kernel begin no more connections on a listening socket, while those that it has begun are still accepted.

    Closing it would break what waits to be accepted, with requests that may have been sent already; a client
    that connects now gets no answer, has sent nothing, and may safely use another server. Does nothing where the kernel
    cannot.
    """
    program = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM))
    with suppress(OSError):
        where = struct.pack("HL", len(_PROGRAM) // 8, ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, where)
