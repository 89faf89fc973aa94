"""An endpoint of the demo's own: it verifies the webhooks that come, and remembers when each event came."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.client import Client
from penstock.model.clock import Clock
from penstock.model.errors import WebhookRefused
from penstock.model.events import event_id
from penstock.webhooks import Receiver

NAME = "demo"
TAKEN_UP_WITHIN = timedelta(seconds=20)


class DemoEndpoint(ThreadingHTTPServer):
    """Listens on a free port of this machine. Threads share what it knows, under its condition."""

    daemon_threads = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(("127.0.0.1", 0), DemoHandler)
        self.receiver: Receiver | None = None
        self.clock = clock
        self._came: dict[str, datetime] = {}
        self._changed = threading.Condition()

    def note(self, event: str) -> None:
        with self._changed:
            self._came.setdefault(event, self.clock.now())
            self._changed.notify_all()

    def wait_for(self, event: str, patience: timedelta) -> datetime | None:
        """When an event came, verified; None if it does not within this time."""
        with self._changed:
            self._changed.wait_for(lambda: event in self._came, patience.total_seconds())
            return self._came.get(event)


class DemoHandler(BaseHTTPRequestHandler):
    server: DemoEndpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 204 if self._take(body) else 400
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the story tells what came."""

    def _take(self, body: bytes) -> bool:
        """Note the events of a message; False if it is not signed with the secret of the subscription."""
        if self.server.receiver is None:
            return False
        try:
            events = self.server.receiver.read(self.headers, body)
        except WebhookRefused:
            return False
        for one in events:
            self.server.note(one.event.id)
        return True


@contextmanager
def open_endpoint(client: Client, clock: Clock, job_type: str) -> Iterator[DemoEndpoint]:
    """An endpoint that is told of every change of one type's jobs, from a first job on that is over by now."""
    with DemoEndpoint(clock) as endpoint:
        serving = threading.Thread(target=endpoint.serve_forever, daemon=True)
        serving.start()
        try:
            url = f"http://127.0.0.1:{endpoint.server_port}/"
            made = client.subscriptions.create(NAME, url, types=[job_type])
            endpoint.receiver = Receiver(made.secret or "")
            _await_relay(client, endpoint, job_type)
            yield endpoint
            client.subscriptions.delete(NAME)
        finally:
            endpoint.shutdown()
            serving.join()


def _await_relay(client: Client, endpoint: DemoEndpoint, job_type: str) -> None:
    """Wait until deliveries flow: a server takes up a new subscription within a second."""
    first = client.submit(job_type, {"good_from": 1})
    endpoint.wait_for(event_id(first.id, 1), TAKEN_UP_WITHIN)
