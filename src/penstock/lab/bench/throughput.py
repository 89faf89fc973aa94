"""How fast jobs are accepted and started: one by one, in bulk, and with many others waiting or finished."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle
from statistics import median
from urllib.parse import urlsplit

import msgspec

from penstock.cli.process import run
from penstock.lab.bench.app import rate
from penstock.lab.bench.rig import BATCH, PAD, TYPE, Amounts, Figure, Rig, Workshop
from penstock.lab.children import ChildFailed
from penstock.model.clock import Clock, SystemClock, seconds

CALLERS = 64


def submit(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """One caller, then 64; beside them the same server's rate for a POST that it only reads and answers.

    The queue is paused meanwhile, so that the rate is that of submits alone.
    """
    with workshop.rig() as rig:
        rig.client.pause(TYPE)

        def measure(requests: Sequence[bytes], callers: int) -> float:
            return run(posts_per_second(rig.url, requests, callers, amounts.submit_seconds, SystemClock()))

        one = measure(submits(rig.url), 1)
        many = measure(submits(rig.url), CALLERS)
        bare = measure(noops(rig.url), CALLERS)
    return [
        Figure("submit", "1 caller", one, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers", many, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers, no-op POST", bare, "/s", "the same server, nothing stored"),
        Figure("submit", "submit / no-op POST", many / bare, "×"),
    ]


def bulk(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Batches of a thousand through the SDK's client, one after the other."""
    with workshop.rig() as rig:
        rig.client.pause(TYPE)
        seconds = rig.load(amounts.bulk_jobs)
    return [Figure("bulk", "jobs accepted", amounts.bulk_jobs / seconds, "/s", f"{BATCH:,} per call, one caller")]


def drain(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """No-op jobs loaded while their queue is paused; (n - 1) / (last start - first start)."""
    with workshop.rig() as rig:
        starts = rig.drain(amounts.drain_jobs)
    return [Figure("drain", "jobs started", rate(starts), "/s", f"{len(starts):,} no-op jobs")]


FAR_AHEAD = seconds(3600)
ROUNDS = 3


def growth(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """The drain rate of a few jobs with many scheduled ahead, with many more queued behind, with many finished.

    Each is measured by turns with the same drain on a second, almost empty system, because the machine's own speed
    changes from minute to minute; the ratio is what counts.
    """
    few, queued, scheduled = amounts.few_jobs, amounts.queued_jobs, amounts.scheduled_jobs
    with workshop.rig() as full, workshop.rig() as empty:
        full.load(scheduled, FAR_AHEAD)
        ahead = Turns(full, empty, few).take(ROUNDS)
        behind = Turns(full, empty, few, behind=queued).take(1)
        ended = (ROUNDS + 1) * few + queued
        finished = Turns(full, empty, few).take(ROUNDS)
    return [
        Figure("growth", "drain, almost empty", median(ahead.empty + finished.empty), "/s", f"{few:,} jobs"),
        ahead.figure(f"with {scheduled:,} scheduled"),
        behind.figure(f"with {queued:,} queued too"),
        finished.figure(f"with {ended:,} finished"),
    ]


class Turns:
    """Drains of a full and an empty system by turns. `behind` more jobs are backlog in the full one."""

    def __init__(self, full: Rig, empty: Rig, jobs: int, *, behind: int = 0) -> None:
        self._rigs = full, empty
        self._jobs = jobs
        self._behind = behind
        self.full: list[float] = []
        self.empty: list[float] = []

    def take(self, rounds: int) -> "Turns":
        full, empty = self._rigs
        for _ in range(rounds):
            self.empty.append(rate(empty.drain(self._jobs)))
            self.full.append(rate(full.drain(self._jobs, behind=self._behind)))
            full.wait_for_starts(self._jobs + self._behind)
        return self

    def figure(self, name: str) -> Figure:
        """The median of the ratios, each of two drains that followed each other."""
        ratio = median(full / empty for full, empty in zip(self.full, self.empty, strict=True))
        return Figure("growth", name, ratio, "×", f"{median(self.full):,.0f} /s")


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
    """One connection that sends a request as soon as the last one is answered, until the deadline.

    A bare socket: the load generator shares the cores with the server that it measures, and an HTTP library would take
    more time than the server. One process keeps a server busy, and a second would take a core from it.
    """

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
