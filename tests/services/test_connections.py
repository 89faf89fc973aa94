"""What a client may make a server hold: bounded in bytes, in time and in number, before anything else is looked at."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from penstock.runtime.tcp import (
    AHEAD_BYTES,
    ANSWER_SECONDS,
    BODY_SECONDS,
    BODY_STEP_BYTES,
    HEAD_BYTES,
    HEAD_SECONDS,
    PIECE_BYTES,
    SURPLUS,
    BoundedConnection,
    H11Connection,
    HttpServer,
    HttpToolsConnection,
    end_overdue,
)

GET = b"GET / HTTP/1.1\r\nHost: h\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
END = b"\r\n"
WITHIN = 20
TICK = 1.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Place:
    """A server of one app, whose clock is moved by hand."""

    def __init__(self, kind: type[BoundedConnection], app: ASGIApp, most: int = 0) -> None:
        self.config = uvicorn.Config(
            app,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=600,
        )
        self.config.load()
        self.state = ServerState()
        self.now = asyncio.get_running_loop().time()
        self._kind = kind
        self._most = most
        self._server: asyncio.Server | None = None
        self._streams: list[Stream] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0)

    def _connection(self) -> BoundedConnection:
        return self._kind(most=self._most, config=self.config, server_state=self.state, app_state={})

    async def connect(self) -> Stream:
        before = len(self.state.connections)
        stream = await self.knock()
        await self.until(lambda: len(self.state.connections) > before)
        self.now = asyncio.get_running_loop().time()
        return stream

    async def knock(self) -> Stream:
        """A connection that the server may close at once."""
        assert self._server is not None
        stream = await asyncio.open_connection(*self._server.sockets[0].getsockname())
        self._streams.append(stream)
        return stream

    @property
    def connection(self) -> Any:
        """The only connection."""
        (connection,) = self.state.connections
        return connection

    async def until(self, what: Any) -> None:
        """Let the server go on until something is so."""
        async with asyncio.timeout(WITHIN):
            while not what():
                await turn()

    async def received(self, size: int) -> None:
        """Wait until the only connection has brought so many bytes."""
        connection = self.connection
        await self.until(lambda: connection._received >= size)  # noqa: SLF001

    async def pass_time(self, seconds: float) -> None:
        """What ticks do while so many seconds pass."""
        for _ in range(int(seconds / TICK)):
            self.now += TICK
            end_overdue(self.state.connections, self.now)
            await turn()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for _, writer in self._streams:
            writer.close()
        for task in list(self.state.tasks):
            task.cancel()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
        await self.until(lambda: not self.state.connections)


async def turn() -> None:
    """Let the event loop come round once."""
    await asyncio.sleep(0)


@asynccontextmanager
async def place(kind: type[BoundedConnection], app: ASGIApp, most: int = 0) -> AsyncIterator[Place]:
    one = Place(kind, app, most)
    await one.open()
    try:
        yield one
    finally:
        await one.close()


async def echo_size(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that answers with the size of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await answer(send, str(size).encode())


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that takes the body and waits until the client has gone, as a long poll may."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that asks for nothing."""
    await asyncio.Event().wait()


async def answer(send: Send, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def status(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The status of an answer and its body, if that is JSON."""
    async with asyncio.timeout(WITHIN):
        head = await reader.readuntil(END + END)
        length = next(int(line[15:]) for line in head.lower().split(END) if line.startswith(b"content-length:"))
        body = await reader.readexactly(length)
    return int(head.split()[1]), json.loads(body)


async def refusal(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The problem that ended the connection."""
    code, problem = await status(reader)
    async with asyncio.timeout(WITHIN):
        assert await reader.read() == b""
    assert problem["status"] == code
    return code, problem["code"]


@pytest.fixture(params=[HttpToolsConnection, H11Connection], ids=["httptools", "h11"])
def kind(request: pytest.FixtureRequest) -> type[BoundedConnection]:
    found: type[BoundedConnection] = request.param
    return found


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of the connection, whichever way it ends."""
    async with asyncio.timeout(WITHIN):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
    return True


class TestBytes:
    @pytest.mark.parametrize("start", [GET + b"X: ", b"GET /?", GET], ids=["a value", "the target", "many"])
    async def test_a_head_without_an_end_is_refused_at_64_kib(
        self, kind: type[BoundedConnection], start: bytes
    ) -> None:
        endless = b"X-Y: z\r\n" if start == GET else b"x" * 8
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(start + endless * ((HEAD_BYTES + PIECE_BYTES) // 8))
            assert await refusal(reader) == (431, "too_large")

    async def test_a_long_head_that_came_whole_is_refused_too(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(GET + b"X: " + b"x" * (HEAD_BYTES + 2 * PIECE_BYTES) + END + END)
            assert await refusal(reader) == (431, "too_large")

    async def test_a_head_of_nearly_64_kib_is_answered_and_so_is_the_next(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            for _ in range(3):
                writer.write(GET + b"X: " + b"x" * (HEAD_BYTES - 1024) + END + END)
                assert await status(reader) == (200, 0)

    async def test_a_head_after_a_large_body_in_the_same_packet_is_not_taken_for_long(
        self, kind: type[BoundedConnection]
    ) -> None:
        size = 3 * HEAD_BYTES
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            for _ in range(3):
                writer.write(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
                assert await status(reader) == (200, size)

    @pytest.mark.parametrize("what", ["trailers", "chunk extensions"])
    async def test_what_surrounds_a_body_in_chunks_is_bounded_too(
        self, kind: type[BoundedConnection], what: str
    ) -> None:
        more = b"X-Y: z\r\n" if what == "trailers" else b"x" * 8
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n")
            writer.write(b"0\r\n" if what == "trailers" else b"4;x=")
            writer.write(more * ((HEAD_BYTES + 2 * PIECE_BYTES) // 8))
            assert (await refusal(reader))[0] in (431, 400)

    async def test_a_body_in_very_many_chunks_is_taken(self, kind: type[BoundedConnection]) -> None:
        chunks = 40_000
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
            assert await status(reader) == (200, chunks)

    async def test_a_client_that_asks_on_and_on_without_an_answer_is_cut_off(
        self, kind: type[BoundedConnection]
    ) -> None:
        async with place(kind, never) as server:
            reader, writer = await server.connect()
            connection = server.connection
            writer.write((GET + END) * (20 * AHEAD_BYTES // len(GET + END)))
            assert await ended(reader)
            await server.until(lambda: not server.state.connections)
            assert len(connection.pipeline) < 4 * AHEAD_BYTES / len(GET + END)

    async def test_a_few_requests_in_one_packet_are_all_answered(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            for _ in range(30):
                writer.write((GET + END) * 10)
                assert [await status(reader) for _ in range(10)] == [(200, 0)] * 10

    async def test_what_is_not_http_is_a_problem(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            assert await refusal(reader) == (400, "malformed")


class TestTime:
    async def test_a_connection_that_says_nothing_is_closed_without_a_word(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, _ = await server.connect()
            await server.pass_time(HEAD_SECONDS - 1)
            assert server.state.connections
            await server.pass_time(2)
            assert await reader.read() == b""

    @pytest.mark.parametrize("sent", [b"GET /", GET + b"X: "])
    async def test_a_head_that_does_not_end_in_time_is_refused_however_it_trickles(
        self, kind: type[BoundedConnection], sent: bytes
    ) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            for tick in range(int(HEAD_SECONDS) - 1):
                writer.write(sent if tick == 0 else b"x")
                await server.received(len(sent) + tick)
                await server.pass_time(1)
            await server.pass_time(2)
            assert await refusal(reader) == (408, "request_timeout")

    async def test_a_connection_that_stays_idle_after_an_answer_is_closed(self) -> None:
        """Over httptools; uvicorn's timer does it over h11."""
        async with place(HttpToolsConnection, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(GET + END)
            assert await status(reader) == (200, 0)
            assert server.connection.timeout_keep_alive_task is None
            await server.pass_time(server.config.timeout_keep_alive - 1)
            writer.write(GET + END)
            assert await status(reader) == (200, 0)
            server.now = asyncio.get_running_loop().time()
            await server.pass_time(server.config.timeout_keep_alive - 1)
            assert not server.connection.transport.is_closing()
            connection = server.connection
            await server.pass_time(3)
            assert connection.transport.is_closing()

    async def test_the_server_looks_for_slow_clients_by_itself(self, kind: type[BoundedConnection]) -> None:
        config = uvicorn.Config(never, http=kind, log_config=None, lifespan="off", interface="asgi3")
        server = HttpServer(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.ensure_future(server.serve([listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            async with asyncio.timeout(WITHIN):
                while not server.server_state.connections:
                    await turn()
                (connection,) = server.server_state.connections
                connection._head_since -= HEAD_SECONDS  # type: ignore[union-attr] # noqa: SLF001
                assert await reader.read() == b""
            writer.close()
            server.should_exit = True
            await serving

    async def test_line_ends_are_no_head(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(END)
            await server.until(lambda: not server.state.connections or server.connection._received)  # noqa: SLF001
            await server.pass_time(HEAD_SECONDS + 2)
            assert await ended(reader)

    async def test_the_second_request_of_a_connection_has_the_same_deadline_from_its_first_byte(
        self, kind: type[BoundedConnection]
    ) -> None:
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(GET + END)
            assert await status(reader) == (200, 0)
            await server.pass_time(2 * HEAD_SECONDS)
            assert server.state.connections, "idle connections are left to their own deadline"
            writer.write(b"G")
            await server.received(len(GET + END) + 1)
            server.now = asyncio.get_running_loop().time()
            await server.pass_time(HEAD_SECONDS - 1)
            assert server.state.connections
            await server.pass_time(2)
            assert await refusal(reader) == (408, "request_timeout")

    async def test_a_body_that_stands_still_is_refused(self, kind: type[BoundedConnection]) -> None:
        head = POST + b"Content-Length: 1000000\r\n\r\n"
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(head + b"x")
            await server.received(len(head) + 1)
            await server.pass_time(BODY_SECONDS)
            assert server.state.connections
            await server.pass_time(2)
            assert await refusal(reader) == (408, "request_timeout")

    async def test_a_body_that_only_trickles_is_refused(self, kind: type[BoundedConnection]) -> None:
        head = POST + b"Content-Length: 1000000\r\n\r\n"
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(head)
            for tick in range(int(BODY_SECONDS) + 2):
                writer.write(b"x" * 100)
                await server.received(len(head) + 100 * (tick + 1))
                await server.pass_time(1)
            assert await refusal(reader) == (408, "request_timeout")

    async def test_a_body_may_take_any_time_as_long_as_it_comes(self, kind: type[BoundedConnection]) -> None:
        steps = 20
        head = POST + b"Content-Length: %d\r\n\r\n" % (steps * BODY_STEP_BYTES)
        async with place(kind, echo_size) as server:
            reader, writer = await server.connect()
            writer.write(head)
            for step in range(steps):
                await server.pass_time(BODY_SECONDS - 2)
                writer.write(b"x" * BODY_STEP_BYTES)
                await server.received(len(head) + (step + 1) * BODY_STEP_BYTES)
            assert await status(reader) == (200, steps * BODY_STEP_BYTES)

    @pytest.mark.parametrize("expects", [b"", b"Expect: 100-continue\r\n"])
    async def test_a_client_is_not_blamed_while_nobody_asks_for_its_body(
        self, kind: type[BoundedConnection], expects: bytes
    ) -> None:
        async with place(kind, deaf) as server:
            _, writer = await server.connect()
            connection = server.connection
            writer.write(POST + expects + b"Content-Length: 1000000\r\n\r\n")
            if expects:
                await server.until(lambda: connection.cycle is not None)
            else:
                writer.write(b"x" * 900_000)
                await server.until(lambda: connection.flow is not None and connection.flow.read_paused)
            await server.pass_time(3 * BODY_SECONDS)
            assert not connection.transport.is_closing()

    async def test_a_long_poll_may_wait(self, kind: type[BoundedConnection]) -> None:
        head = POST + b"Content-Length: 2\r\n\r\n{}"
        async with place(kind, never) as server:
            _, writer = await server.connect()
            connection = server.connection
            writer.write(head)
            await server.received(len(head))
            await server.pass_time(5 * ANSWER_SECONDS)
            assert not connection.transport.is_closing()

    async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(self, kind: type[BoundedConnection]) -> None:
        async def plenty(scope: Scope, receive: Receive, send: Send) -> None:
            await answer(send, b"x" * 50_000_000)

        async with place(kind, plenty) as server:
            _, writer = await server.connect()
            connection = server.connection
            writer.write(GET + END)
            await server.until(lambda: connection.cycle is not None and connection.cycle.response_complete)
            await server.pass_time(ANSWER_SECONDS)
            assert server.state.connections
            await server.pass_time(2)
            await server.until(lambda: not server.state.connections)

    async def test_the_rest_of_a_body_that_was_refused_is_not_taken_for_ever(
        self, kind: type[BoundedConnection]
    ) -> None:
        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            await answer(send, b"0")

        head = POST + b"Content-Length: 100000000\r\n\r\n"
        async with place(kind, refuse) as server:
            reader, writer = await server.connect()
            writer.write(head)
            assert await status(reader) == (200, 0)
            server.now = asyncio.get_running_loop().time()
            for tick in range(int(HEAD_SECONDS) - 1):
                writer.write(b"x" * 100_000)
                await server.received(len(head) + 100_000 * (tick + 1))
                await server.pass_time(1)
            assert server.state.connections
            await server.pass_time(2)
            assert await ended(reader)


class TestNumber:
    async def test_connections_beyond_the_bound_are_told_so_until_another_ends(
        self, kind: type[BoundedConnection]
    ) -> None:
        async with place(kind, echo_size, most=2) as server:
            (_, first), (reader, second) = await server.connect(), await server.connect()
            surplus, asking = await server.connect()
            asking.write(GET + END)
            assert await refusal(surplus) == (503, "server_busy")
            second.write(GET + END)
            assert await status(reader) == (200, 0)
            first.close()
            await server.until(lambda: len(server.state.connections) == 1)
            reader, writer = await server.connect()
            writer.write(GET + END)
            assert await status(reader) == (200, 0)

    async def test_whether_the_process_is_alive_is_answered_all_the_same(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size, most=1) as server:
            await server.connect()
            reader, writer = await server.connect()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            assert await status(reader) == (200, 0)

    async def test_far_beyond_the_bound_they_are_closed_at_once(self, kind: type[BoundedConnection]) -> None:
        async with place(kind, echo_size, most=1) as server:
            for _ in range(1 + SURPLUS):
                await server.connect()
            reader, _ = await server.knock()
            assert await ended(reader)
            assert len(server.state.connections) == 1 + SURPLUS
