"""Short calls over plain HTTP/1.1 and kept connections, for any thread: submits, above all.

A general HTTP client took longer for a submit than server and store together, and a tenth of a second to import. This
one knows only what a short call to a Penstock server needs: bodies in memory, no TLS, no proxy. `http` has the rest.
"""

import os
import re
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.client.calls import Reply

CONNECTIONS = 100
IDLE_SECONDS = 2.0
"""A connection unused for longer may be closed by the server at any moment; a new one is safer."""
READ_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""The longest head of an answer, and the longest line between two chunks of its body."""

_PLAIN_TARGET = re.compile(r"/[!-~]*").fullmatch
_PLAIN_VALUE = re.compile(r"[^\r\n\0]*").fullmatch
_LENGTH = re.compile(r"[0-9]{1,18}").fullmatch
_NO_BODY = frozenset({204, 304})


class CallFailed(Exception):
    """No answer, or an unreadable one. `sent`: the server may have acted on the call."""

    def __init__(self, words: str, *, sent: bool = True) -> None:
        super().__init__(words)
        self.sent = sent


class Waits(Struct, frozen=True):
    """How long a call may wait, in seconds: for a connection, and for the next bytes of an answer."""

    connect: float
    answer: float


class PlainHttpClient:
    """Calls to the server at an `http://` URL. A forked child uses none of its parent's connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "localhost", parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._own = f"host: {parts.netloc}\r\naccept: */*\r\nuser-agent: penstock-python\r\n"
        self._pid = os.getpid()
        self._idle: list[PlainConnection] = []
        self._free = BoundedSemaphore(CONNECTIONS)

    @staticmethod
    def reaches(url: str) -> bool:
        """Whether calls to this URL need neither TLS, nor a password of its own, nor a proxy."""
        from urllib.request import getproxies

        return url.startswith("http://") and "@" not in url and not getproxies().keys() & {"http", "all"}

    @staticmethod
    def takes(target: str) -> bool:
        """Whether path and query are written as HTTP has them."""
        return _PLAIN_TARGET(target) is not None

    def call(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], waits: Waits) -> Reply:
        """One call and its answer; CallFailed without one."""
        request = self._request(method, target, body, headers)
        if self._pid != os.getpid():
            self._pid, self._idle, self._free = os.getpid(), [], BoundedSemaphore(CONNECTIONS)
        if not self._free.acquire(timeout=waits.answer):
            raise CallFailed(f"all {CONNECTIONS} connections of this client are in use", sent=False)
        connection = None
        try:
            connection = self._take_idle() or self._connect(waits.connect)
            reply = connection.call(request, waits.answer)
            if connection.is_open:
                self._idle.append(connection)
                connection = None
            return reply
        finally:
            if connection is not None:
                connection.close()
            self._free.release()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        length = "" if body is None and method == "GET" else f"content-length: {len(body or b'')}\r\n"
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items() if _PLAIN_VALUE(value)])
        if lines.count("\r\n") != len(headers):
            raise CallFailed("a header's value has a line break in it", sent=False)
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._own}{length}{lines}\r\n"
        return head.encode("latin-1") + (body or b"")

    def _take_idle(self) -> "PlainConnection | None":
        # Another thread may take the last one between a look and a pop.
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_fresh():
                    return connection
                connection.close()
        return None

    def _connect(self, seconds: float) -> "PlainConnection":
        try:
            link = socket.create_connection(self._address, seconds)
        except OSError as error:
            raise CallFailed(str(error), sent=False) from None
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return PlainConnection(link)


class PlainConnection:
    """One connection; one call at a time. After a call it is open only if another may follow."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN | select.POLLHUP | select.POLLERR)
        self._used_at = 0.0
        self._unread = b""
        self.is_open = True

    def is_fresh(self) -> bool:
        """Whether it was used lately and the server has not closed it: data that comes unasked means that it did."""
        return time.monotonic() - self._used_at < IDLE_SECONDS and not self._poll.poll(0)

    def close(self) -> None:
        self._link.close()

    def call(self, request: bytes, seconds: float) -> Reply:
        self.is_open = False
        try:
            self._link.settimeout(seconds)
            # A server may refuse a long body before it has all of it: its answer is there to be read.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._link.sendall(request)
            return self._read_answer()
        except (OSError, ValueError) as error:
            raise CallFailed(str(error) or type(error).__name__) from None
        finally:
            self._used_at = time.monotonic()

    def _read_answer(self) -> Reply:
        status, keep, headers = self._read_head()
        while 100 <= status < 200:
            status, keep, headers = self._read_head()
        body = self._read_body(status, headers)
        self.is_open = keep and body is not None and not self._unread
        return Reply(status, self._read_to_end() if body is None else body, headers)

    def _read_head(self) -> tuple[int, bool, dict[str, str]]:
        """Status, whether the connection may be used again, and the headers by their names in lower case."""
        first, *lines = self._read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/1."):
            raise ValueError("the answer is not HTTP/1.1")
        pairs = [line.partition(":") for line in lines]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        said = headers.get("connection", "").lower()
        return int(first[9:12]), first[7] == "1" and "close" not in said, headers

    def _read_body(self, status: int, headers: Mapping[str, str]) -> bytes | None:
        """None for a body that ends with the connection."""
        if status in _NO_BODY:
            return b""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks()
        length = headers.get("content-length")
        if length is None:
            return None
        if _LENGTH(length) is None:
            raise ValueError("the length of the answer cannot be read")
        return self._read_exactly(int(length))

    def _read_chunks(self) -> bytes:
        chunks = []
        while size := int(self._read_until(b"\r\n").partition(b";")[0], 16):
            chunks.append(self._read_exactly(size))
            self._read_until(b"\r\n")
        while self._read_until(b"\r\n"):
            """Skip the trailers."""
        return b"".join(chunks)

    def _read_until(self, mark: bytes) -> bytes:
        """What comes before the mark, which is dropped."""
        data = self._unread
        while (end := data.find(mark)) < 0:
            if len(data) > HEAD_BYTES:
                raise ValueError("the head of the answer is too long")
            data += self._receive()
        self._unread = data[end + len(mark) :]
        return data[:end]

    def _read_exactly(self, size: int) -> bytes:
        parts, missing = [self._unread], size - len(self._unread)
        while missing > 0:
            parts.append(self._receive())
            missing -= len(parts[-1])
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        self._unread = data[size:]
        return data[:size]

    def _read_to_end(self) -> bytes:
        parts = [self._unread]
        while part := self._link.recv(READ_BYTES):
            parts.append(part)
        return b"".join(parts)

    def _receive(self) -> bytes:
        data = self._link.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection without an answer")
        return data
