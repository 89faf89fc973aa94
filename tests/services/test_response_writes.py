"""What a connection is told in one turn leaves in one write; nothing is held beyond the turn, or beyond its bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from penstock.runtime.tcp import HELD_BYTES, Corked, HttpConnection

CHUNK = b"x" * 32 * 1024
CHUNKS = 2_000
"""Together far more than what sockets hold."""


class Written(asyncio.Transport):
    """A transport that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.closed_after = -1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.closed_after = len(self.pieces)

    def is_closing(self) -> bool:
        return self.closed_after >= 0


async def turn() -> None:
    """Let the event loop come round once."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


async def test_head_and_body_leave_together_at_the_end_of_the_turn() -> None:
    below = Written()
    corked = Corked(below)
    corked.write(b"head ")
    corked.write(b"body")
    assert below.pieces == []
    await turn()
    assert below.pieces == [b"head body"]


async def test_what_is_written_in_two_turns_leaves_in_two_pieces() -> None:
    below = Written()
    corked = Corked(below)
    corked.write(b"100 Continue")
    await turn()
    corked.write(b"200 OK")
    await turn()
    assert below.pieces == [b"100 Continue", b"200 OK"]


async def test_much_is_written_at_once_so_that_the_transport_can_slow_the_writer_down() -> None:
    below = Written()
    corked = Corked(below)
    corked.write(b"head ")
    corked.write(b"x" * HELD_BYTES)
    assert below.pieces == [b"head " + b"x" * HELD_BYTES]
    await turn()
    assert len(below.pieces) == 1


async def test_closing_writes_what_is_held_first() -> None:
    below = Written()
    corked = Corked(below)
    corked.write(b"goodbye")
    corked.close()
    await turn()
    assert (below.pieces, below.closed_after) == ([b"goodbye"], 1)
    assert corked.is_closing()


async def test_nothing_is_written_to_a_client_that_has_gone_meanwhile() -> None:
    below = Written()
    corked = Corked(below)
    corked.write(b"too late")
    below.close()
    await turn()
    assert below.pieces == []


class Stream:
    """An app that answers with many chunks, and never waits for anything but its server."""

    def __init__(self) -> None:
        self.sent = 0
        self.paused = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = str(CHUNKS * len(CHUNK)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for left in range(CHUNKS, 0, -1):
            sending = asyncio.ensure_future(send({"type": "http.response.body", "body": CHUNK, "more_body": left > 1}))
            await turn()
            await turn()
            if not sending.done():
                self.paused.set()
            await sending
            self.sent += 1


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that answers with the body it was sent."""
    body = (await receive())["body"]
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(app: object) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that speaks corked HTTP."""
    config = uvicorn.Config(app, log_config=None, lifespan="off", interface="asgi3", http=HttpConnection)  # type: ignore[arg-type]
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        await asyncio.gather(*state.tasks)


async def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on() -> None:
    async with connected(echo) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(4) == b"body"


async def test_a_head_is_answered_without_a_body_and_the_connection_goes_on() -> None:
    async with connected(echo) as (reader, writer):
        for method, answered in ((b"HEAD", b""), (b"POST", b"body")):
            writer.write(method + b" / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
            assert b"content-length: 4" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(answered)) == answered


async def test_a_client_that_does_not_read_holds_the_answer_up() -> None:
    stream = Stream()
    async with connected(stream) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await stream.paused.wait()
        assert stream.sent < CHUNKS
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(CHUNKS * len(CHUNK)) == CHUNK * CHUNKS
