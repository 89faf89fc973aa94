"""The load generator for submits: bare sockets on one event loop, requests built beforehand.

It shares the machine's cores with the server it measures, so it has to cost little: an HTTP library would take more
time than the server. One process is enough to keep a server busy, and a second would take a core away from it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle
from urllib.parse import urlsplit

import msgspec

from penstock.lab.bench.rig import PAD, TYPE
from penstock.lab.children import ChildFailed
from penstock.model.clock import Clock

REQUESTS = 2_000
"""How many different requests are built; then they come again."""


def submits(url: str) -> Sequence[bytes]:
    """Requests that each add one job."""
    bodies = (
        {"type": TYPE, "params": {"number": number, "expected_at": 0.0, "pad": PAD}} for number in range(REQUESTS)
    )
    return [_post(url, "/v1/jobs", body) for body in bodies]


def noops(url: str) -> Sequence[bytes]:
    """Requests that the same server reads, checks and answers without touching its store."""
    return [_post(url, "/v1/workers/bench/release", {"leases": []})]


async def posts_per_second(url: str, requests: Sequence[bytes], callers: int, seconds: float, clock: Clock) -> float:
    """How many requests are answered per second with so many callers, each waiting for its answer before the next."""
    host, port = _address(url)
    loop = asyncio.get_running_loop()
    source, began = cycle(requests), clock.monotonic()
    made = [
        (await loop.create_connection(lambda: Caller(source, began + seconds, clock), host, port))[1]
        for _ in range(callers)
    ]
    await asyncio.gather(*(caller.done for caller in made))
    return sum(caller.answered for caller in made) / (clock.monotonic() - began)


class Caller(asyncio.Protocol):
    """One connection that sends a request as soon as the last one is answered, until the deadline."""

    def __init__(self, source: Iterator[bytes], deadline: float, clock: Clock) -> None:
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._source = source
        self._deadline = deadline
        self._clock = clock
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        self._transport.write(next(self._source))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not _is_whole(self._received):
            return
        if self._received[9:10] != b"2":
            self._fail(f"answered: {self._received[:300].decode(errors='replace')}")
            return
        self._received = b""
        self.answered += 1
        if self._clock.monotonic() < self._deadline:
            self._transport.write(next(self._source))
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, why: str) -> None:
        self.done.set_exception(ChildFailed(f"the server refused a request of the bench: {why}"))
        self._transport.close()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def _post(url: str, path: str, body: object) -> bytes:
    content = msgspec.json.encode(body)
    host = urlsplit(url).netloc
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    return f"{head}\r\n\r\n".encode() + content


def _is_whole(answer: bytes) -> bool:
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    _, _, rest = head.lower().partition(b"content-length:")
    return len(body) >= int(rest.split(b"\r\n", 1)[0])
