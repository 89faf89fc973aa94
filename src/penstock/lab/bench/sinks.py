"""How soon and how fast a sink is told, and what a subscription costs the jobs: its sink well, down, or hanging."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median, quantiles

import msgspec

from penstock.lab.bench.rig import TYPE, Amounts, Figure, Rig, Workshop
from penstock.lab.bench.throughput import Turns
from penstock.lab.children import ChildFailed
from penstock.model.clock import SystemClock

NAME = "bench"
BATCHED = 100
IDLE_STEP_SECONDS = 0.1
ARRIVE_SECONDS = 60.0


class WellHandler(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def open_well_sink() -> Iterator[int]:
    """A port where each message is taken at once."""
    with ThreadingHTTPServer(("127.0.0.1", 0), WellHandler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


@contextmanager
def open_sink_that_is_down() -> Iterator[int]:
    """A port that refuses connections: it is taken, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def open_sink_that_hangs() -> Iterator[int]:
    """A port where connections are made and never answered: the kernel takes them in."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        yield listening.getsockname()[1]


class ArrivalServer(ThreadingHTTPServer):
    """A sink that notes how many milliseconds old each event was when it came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ArrivalHandler)
        self.ages: list[float] = []
        self.changed = threading.Condition()

    def note(self, body: bytes) -> None:
        found = msgspec.json.decode(body)
        now = SystemClock().now()
        ages = [_age(one, now) for one in (found if isinstance(found, list) else [found])]
        with self.changed:
            self.ages += ages
            self.changed.notify_all()

    def wait_for(self, events: int) -> None:
        """Wait until so many events have come; ChildFailed if that takes too long."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.ages) >= events, ARRIVE_SECONDS):
                raise ChildFailed(f"only {len(self.ages):,} of {events:,} events reached the sink")


class ArrivalHandler(WellHandler):
    """Notes what comes, and takes it."""

    def do_POST(self) -> None:
        assert isinstance(self.server, ArrivalServer)  # noqa: S101 - the only server that uses it
        self.server.note(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()


def _age(event: dict[str, str], now: datetime) -> float:
    return (now - datetime.fromisoformat(event["time"])).total_seconds() * 1000


def tell_sinks(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Change → sink on an idle system, then deliveries per second of a backlog of events, singly and in batches."""
    with workshop.rig() as rig:
        rig.client.pause(TYPE)
        idle = _idle(rig, amounts.latency_jobs // 2)
        single = _deliver(rig, 1, amounts.few_jobs // 10)
        batched = _deliver(rig, BATCHED, amounts.few_jobs)
    cuts = quantiles(idle, n=100, method="inclusive")
    return [
        Figure("events", "change → sink, idle, p50", cuts[49], "ms", "one job every 100 ms, one event per request"),
        Figure("events", "change → sink, idle, p99", cuts[98], "ms", f"{len(idle):,} events"),
        Figure("events", "delivered, one event per request", single, "/s", "with the job item, one sink, 8 at a time"),
        Figure("events", f"delivered, {BATCHED} events per request", batched, "/s", "with the job item, one sink"),
    ]


@contextmanager
def _open_arrivals() -> Iterator[ArrivalServer]:
    with ArrivalServer() as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            serving.join()


def _idle(rig: Rig, jobs: int) -> list[float]:
    pace = threading.Event()
    with _open_arrivals() as sink, _subscription(rig, sink.server_port, 1):
        rig.load(1)
        sink.wait_for(1)
        sink.ages.clear()
        for _ in range(jobs):
            rig.load(1)
            pace.wait(IDLE_STEP_SECONDS)
        sink.wait_for(jobs)
        return list(sink.ages)


def _deliver(rig: Rig, batch: int, jobs: int) -> float:
    """From the first submit to the last arrival; the submits take a small part of it."""
    with _open_arrivals() as sink, _subscription(rig, sink.server_port, batch):
        began = time.monotonic()
        rig.load(jobs)
        sink.wait_for(jobs)
        return jobs / (time.monotonic() - began)


SINKS: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "down": open_sink_that_is_down,
    "hanging": open_sink_that_hangs,
    "well": open_well_sink,
}
"""The one that is well comes last: its deliveries go on after a drain, and take the processor from the next one."""
ROUNDS = 5


def drain_beside_sinks(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Drains by turns with a system that has no subscription; the ratio is what counts."""
    with workshop.rig() as subscribed, workshop.rig() as plain:
        return [_compare(subscribed, plain, state, amounts.few_jobs) for state in SINKS]


def _compare(subscribed: Rig, plain: Rig, state: str, jobs: int) -> Figure:
    with SINKS[state]() as port, _subscription(subscribed, port):
        turns = Turns(subscribed, plain, jobs).take(ROUNDS)
    ratio = median(one / other for one, other in zip(turns.full, turns.empty, strict=True))
    note = f"{median(turns.full):,.0f} /s, without a subscription {median(turns.empty):,.0f}"
    return Figure("events", f"drain, sink {state}", ratio, "×", note)


@contextmanager
def _subscription(rig: Rig, port: int, batch: int = BATCHED) -> Iterator[None]:
    """Everything goes to this port while the body runs, in batches unless told otherwise."""
    rig.client.subscriptions.create(NAME, f"http://127.0.0.1:{port}/", batch=batch)
    try:
        yield
    finally:
        rig.client.subscriptions.delete(NAME)
