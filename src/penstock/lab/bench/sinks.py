"""What a subscription costs the jobs while its sink is well, down, or hangs."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median

from penstock.lab.bench.rig import Amounts, Figure, Rig, Workshop
from penstock.lab.bench.throughput import Turns

NAME = "bench"
BATCHED = 100


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
def _subscription(rig: Rig, port: int) -> Iterator[None]:
    """Everything goes to this port, in batches, while the body runs."""
    rig.client.subscriptions.create(NAME, f"http://127.0.0.1:{port}/", batch=BATCHED)
    try:
        yield
    finally:
        rig.client.subscriptions.delete(NAME)
