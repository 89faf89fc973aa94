"""Streams of events over real processes: they survive the restarts of APIs, and do not keep a server from stopping."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cluster.caller import Caller
from cluster.cluster import Cluster, Size, running
from cluster.results import wait_until_ended
from penstock import Client
from penstock.model.errors import PenstockError
from tests.servers_fixtures import real_servers
from tests.system.test_rolling_restart import Traffic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

READERS = 20
BETWEEN = 40
WITHIN = 60.0
ENDED = {"succeeded", "failed", "cancelled", "expired"}


class History:
    """What one reader was told, by job."""

    def __init__(self, url: str, since: datetime) -> None:
        self._client = Client(url)
        self._since = since
        self._over = threading.Event()
        self.versions: defaultdict[str, list[int]] = defaultdict(list)
        self.ended: set[str] = set()
        self.error: PenstockError | None = None
        self._changed = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        try:
            for event in self._client.events(since=self._since):
                with self._changed:
                    self.versions[event.job].append(event.version)
                    if event.after in ENDED:
                        self.ended.add(event.job)
                    self._changed.notify_all()
        except PenstockError as error:
            self.error = error

    def wait_for_ends(self, jobs: set[str]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: jobs <= self.ended, WITHIN), self.error or len(jobs - self.ended)


def test_readers_have_histories_without_gap_or_double_through_a_rolling_restart() -> None:
    since = datetime.now(UTC) - timedelta(seconds=1)
    with real_servers() as folder, running(folder, Size(shards=2, apis=3, schedulers=1, workers=2)) as cluster:
        histories = [History(f"http://127.0.0.1:{cluster.port}", since) for _ in range(READERS)]
        traffic = Traffic(cluster.port)
        traffic.start()
        with ExitStack() as undo:
            undo.callback(traffic.stop)
            traffic.go_on(BETWEEN)
            roll(cluster, traffic)
        caller = Caller(cluster.port)
        assert wait_until_ended(caller, 90)
        caller.close()
        jobs = set(traffic.jobs)
        for history in histories:
            history.wait_for_ends(jobs)
            wrong = {job: seen for job, seen in history.versions.items() if seen != list(range(1, len(seen) + 1))}
            assert wrong == {}
            assert set(history.versions) == jobs


def roll(cluster: Cluster, traffic: Traffic) -> None:
    for api in cluster.apis:
        api.ask_to_stop()
        assert api.wait() == 0
        api.start()
        traffic.go_on(BETWEEN)


REQUEST = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


def test_a_server_with_open_streams_stops_within_five_seconds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--json", "--no-workers", "--port", "0"]
    environ = {"PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true", "PATH": ""}
    with (
        subprocess.Popen([*command, "--data", str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environ) as server,
        ExitStack() as undo,
    ):
        undo.callback(server.kill)
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        port = int(url.rpartition(":")[2])
        streams = [undo.enter_context(open_stream(port)) for _ in range(50)]
        with Client(url) as client:
            # The streams that are never read are full by then.
            for _ in range(10):
                client.submit_many([{"type": "any"} for _ in range(2_000)])
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait(WITHIN) == 0
        assert time.monotonic() - began < 5.0
        assert all(stream.recv(15).startswith(b"HTTP/1.1 200") for stream in streams)


def open_stream(port: int) -> socket.socket:
    """A connection that has asked for a stream and reads nothing."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
    connection.sendall(REQUEST)
    assert connection.recv(1, socket.MSG_PEEK)
    return connection
