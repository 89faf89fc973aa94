"""The small HTTP/1.1 client of workers and schedulers: short calls over kept connections, a thousand in a second.

A general client took twenty times the processor time per call, more than everything else an agent does for a job. This
one knows only what calls to a Penstock server need: a body each way, of known length or chunked. Files go through
`client.http`.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from ssl import SSLContext
from ssl import create_default_context as default_tls
from types import MappingProxyType
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.client.calls import Reply
from penstock.client.http import excerpt, note_retry_after, problem_in
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import BY_CODE, PenstockError, Refused, ServerUnavailable, Unavailable
from penstock.model.keys import authorization

JSON = MappingProxyType({"content-type": "application/json"})
ANSWER_SECONDS = 10.0
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 2.0
"""A connection unused for longer may be closed by the server at any moment; a fresh one is safer."""
READ_BYTES = 1024 * 1024


class NoAnswer(Exception):
    """No answer, or an unreadable one. Whether the server acted on the call is unknown."""


class ServerConnection:
    """Calls to one server that raise what a bad answer stands for. No answer in time is ServerUnavailable."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        self._client = Http1Client(url, key)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float = ANSWER_SECONDS,
        hang_up: "asyncio.Future[None] | None" = None,
    ) -> bytes:
        """Send one call; the body of a good answer."""
        try:
            answer = await self._client.call(method, path, body, headers, seconds, hang_up)
        except NoAnswer as error:
            raise no_answer(self.url, error) from None
        if not answer.good:
            raise error_of(answer, self.url)
        return answer.body

    async def post(self, path: str, body: bytes, seconds: float = ANSWER_SECONDS) -> bytes:
        """Send JSON; the body of a good answer."""
        return await self.send("POST", path, body, JSON, seconds)

    async def close(self) -> None:
        await self._client.close()


def no_answer(url: str, error: Exception) -> ServerUnavailable:
    return ServerUnavailable(f"no answer from {url}: {str(error) or type(error).__name__}")


def error_of(reply: Reply, url: str) -> PenstockError:
    """The error of a bad answer: Refused only if Penstock itself says so; else ServerUnavailable, to be tried again."""
    problem = problem_in(reply)
    kind = None if problem is None else BY_CODE.get(problem.code)
    if problem is not None and kind is not None and issubclass(kind, (Refused, Unavailable)):
        # Its Retry-After is for interactive clients; a worker's own backoff is slow enough.
        return kind(problem.detail or problem.title)
    words = excerpt(reply) if problem is None else f": {problem.detail or problem.title}"
    error = ServerUnavailable(f"{url} answered {reply.status}{words}", status=reply.status)
    note_retry_after(error, reply)
    return error


class Http1Connection(Struct):
    """One connection; only one call at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_at: float

    @property
    def usable(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def hang_up(self, _: object = None) -> None:
        """Close the sending side and go on reading; with TLS both sides are closed."""
        if self.writer.is_closing():
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        else:
            self.writer.close()


class Http1Client:
    """Calls to one server with an API key, over a pool of idle connections."""

    def __init__(self, url: str, key: str = "", clock: Clock | None = None) -> None:
        parts = urlsplit(url)
        self._tls: SSLContext | None = default_tls() if parts.scheme == "https" else None
        self._host = parts.hostname or "localhost"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._own = {"host": parts.netloc.rpartition("@")[2], **authorization(key)}
        self._clock = clock or SystemClock()
        self._idle: list[Http1Connection] = []

    async def call(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
        hang_up: "asyncio.Future[None] | None" = None,
    ) -> Reply:
        """One call and its answer; NoAnswer when there is none within `seconds`. Cancelled, it closes its connection.

        Once `hang_up` is done the sending side is closed: the server stops waiting, and an answer on its way is read.
        """
        request = self._head(method, path, headers, len(body)) + body
        connection: Http1Connection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = self._waiting() or await self._connect()
                connection.writer.write(request)
                if hang_up is not None:
                    hang_up.add_done_callback(connection.hang_up)
                answer, keep = await _read_answer(connection.reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from None
        else:
            if hang_up is not None:
                hang_up.remove_done_callback(connection.hang_up)
            self._put_back(connection, keep=keep and (hang_up is None or not hang_up.done()))
            connection = None
            return answer
        finally:
            if connection is not None:
                connection.writer.close()

    async def close(self) -> None:
        for connection in self._idle:
            connection.writer.close()
            with suppress(OSError):
                await connection.writer.wait_closed()
        self._idle.clear()

    def _head(self, method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
        named = {**self._own, "content-length": str(length), **headers}
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _waiting(self) -> Http1Connection | None:
        """An idle connection that is still open; stale ones are closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._clock.monotonic() - connection.used_at < IDLE_SECONDS:
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> Http1Connection:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=READ_BYTES)
        return Http1Connection(reader, writer, self._clock.monotonic())

    def _put_back(self, connection: Http1Connection, *, keep: bool) -> None:
        if keep:
            connection.used_at = self._clock.monotonic()
            self._idle.append(connection)
        else:
            connection.writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[Reply, bool]:
    """Read an answer; whether the connection may be used again."""
    status, headers = await _read_head(reader)
    while status < 200:
        status, headers = await _read_head(reader)
    keep = headers.get("connection", "").lower() != "close"
    if status == 204:
        return Reply(status, b"", headers), keep
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Reply(status, await _read_chunks(reader), headers), keep
    if "content-length" in headers:
        return Reply(status, await reader.readexactly(int(headers["content-length"])), headers), keep
    return Reply(status, await reader.read(), headers), False


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in rest if line)
    return int(first.partition(" ")[2][:3]), {name.lower(): value.strip() for name, _, value in pairs}


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        """Skip the trailers."""
    return b"".join(chunks)
