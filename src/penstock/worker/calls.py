"""Small HTTP/1.1 calls over kept connections: what a busy worker makes a thousand of in a second.

A general client took twenty times the processor time per call, more than everything else an agent does for a job. This
one knows only what calls to a Penstock server need: a body each way, of known length or chunked. Files go another way.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from ssl import SSLContext
from ssl import create_default_context as default_tls
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.client.calls import Reply
from penstock.model.clock import Clock, SystemClock
from penstock.model.keys import authorization

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 2.0
"""A connection unused for longer may be closed by the server at any moment: a fresh one is surer."""
READ_BYTES = 1024 * 1024


class Broken(Exception):
    """There is no answer, or none that can be read. Whether the server acted on the call is unknown."""


class Connection(Struct):
    """One connection; only one call at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_at: float

    @property
    def usable(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def hang_up(self, _: object = None) -> None:
        """Send no more, and still read; with TLS one cannot go without the other."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        else:
            self.writer.close()


class Calls:
    """A server, the API key to show it, and the connections to it that wait for the next call."""

    def __init__(self, url: str, key: str = "", clock: Clock | None = None) -> None:
        parts = urlsplit(url)
        self._tls: SSLContext | None = default_tls() if parts.scheme == "https" else None
        self._host = parts.hostname or "localhost"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._own = {"host": parts.netloc.rpartition("@")[2], **authorization(key)}
        self._clock = clock or SystemClock()
        self._idle: list[Connection] = []

    async def call(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
        hang_up: "asyncio.Future[None] | None" = None,
    ) -> Reply:
        """One call and its answer; Broken when there is none within `seconds`. Cancelled, it closes its connection.

        Once `hang_up` is done the server is told that nobody waits any more; an answer on its way is still read.
        """
        request = self._head(method, path, headers, len(body)) + body
        connection: Connection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = self._waiting() or await self._connect()
                connection.writer.write(request)
                if hang_up is not None:
                    hang_up.add_done_callback(connection.hang_up)
                answer, keep = await _read_answer(connection.reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise Broken(str(error) or type(error).__name__) from None
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

    def _waiting(self) -> Connection | None:
        """A kept connection that is surely open still; others are closed on the way."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._clock.monotonic() - connection.used_at < IDLE_SECONDS:
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> Connection:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=READ_BYTES)
        return Connection(reader, writer, self._clock.monotonic())

    def _put_back(self, connection: Connection, *, keep: bool) -> None:
        if keep:
            connection.used_at = self._clock.monotonic()
            self._idle.append(connection)
        else:
            connection.writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[Reply, bool]:
    """An answer, and whether the connection may be used again."""
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
        """Trailers say nothing that matters here."""
    return b"".join(chunks)
