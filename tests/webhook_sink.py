"""A real HTTP endpoint for tests of webhooks, on loopback: it records what comes in, and answers as it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class SinkRequest(Struct, frozen=True):
    """A request as it came. Names of headers are in lower case; `connection` numbers the connections."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


class LocalSink:
    """Answers each request with the next prepared answer; without one, as usual: with 204."""

    def __init__(self) -> None:
        self.requests: list[SinkRequest] = []
        self.answers: list[Answer] = []
        self.usual: Callable[[SinkRequest], Answer] = lambda _: reply(204)
        self.connections = 0
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?to=me"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                self.asked.set()
                await (self.answers.pop(0) if self.answers else self.usual(request))(writer)
                await writer.drain()
        except (ConnectionError, EndOfSink):
            pass
        finally:
            self.hung_up.set()
            writer.close()


class EndOfSink(Exception):
    """The sink closes the connection."""


@asynccontextmanager
async def local_sink() -> AsyncIterator[LocalSink]:
    sink = LocalSink()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # Streams report a cancelled server task as an error.
        with suppress(asyncio.CancelledError):
            await sink.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reply(status: int, body: bytes = b"", **headers: str) -> Answer:
    """A whole answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if status != 204:
        named["content-length"] = str(len(body))

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, named) + body)

    return answer


def endless(status: int, chunk: bytes, sent: list[int], most: int, **headers: str) -> Answer:
    """An answer of `most` bytes, for as long as it is read; `sent` gets how many could be written."""
    named = {"content-length": str(most)} | {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, named))
        written = 0
        try:
            while written < most:
                writer.write(chunk)
                await writer.drain()
                written += len(chunk)
        finally:
            sent.append(written)

    return answer


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def hang_in_the_body(writer: asyncio.StreamWriter) -> None:
    """Say 200, and never send the body that was announced."""
    writer.write(_head(200, {"content-length": "10"}) + b"12345")
    await asyncio.Event().wait()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""
    raise EndOfSink


async def talk_nonsense(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
    await writer.drain()
    raise EndOfSink


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Words", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def _read_request(reader: asyncio.StreamReader, connection: int) -> SinkRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return SinkRequest(line, headers, body, connection)
