"""APIs behind nginx are restarted one after the other, and no client of nginx notices."""

import socket
import sys
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from cluster.caller import Broken, Caller
from cluster.cluster import Cluster, Size, running
from cluster.results import collect_jobs, wait_until_ended
from penstock.runtime.tcp import refuse_new_connections
from tests.servers_fixtures import real_servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CLIENTS = 8
PACE_SECONDS = 0.02
BETWEEN = 50
"""Requests that are answered between two restarts, at least."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can refuse to begin connections")
def test_a_leaving_server_accepts_what_was_begun_and_begins_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as begun:
        begun.sendall(b"asked before it was accepted")
        refuse_new_connections(listener)
        with socket.socket() as late:
            late.settimeout(0.3)
            with pytest.raises(TimeoutError):
                late.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(100) == b"asked before it was accepted"


class Traffic:
    """Clients that never ask twice: what they were told, by status; an answer that did not come is a status too."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.told: Counter[str] = Counter()
        self.jobs: list[str] = []
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._clients = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(CLIENTS)]

    def start(self) -> None:
        for client in self._clients:
            client.start()

    def stop(self) -> None:
        self._over.set()
        for client in self._clients:
            client.join()

    def go_on(self, requests: int) -> None:
        """Wait until so many more were answered."""
        with self._changed:
            wanted = self.told.total() + requests
            assert self._changed.wait_for(lambda: self.told.total() >= wanted, 60)

    def _ask(self, client: int) -> None:
        caller = Caller(self._port)
        n = 0
        while not self._over.wait(PACE_SECONDS):
            n += 1
            body = {"type": "quick", "params": {"n": client * 1_000_000 + n}}
            job = self._tell(caller, "POST", "/v1/jobs", body)
            if job is not None:
                self.jobs.append(job)
                self._tell(caller, "GET", f"/v1/jobs/{job}?wait=1" if n % 5 == 0 else f"/v1/jobs/{job}")
        caller.close()

    def _tell(self, caller: Caller, method: str, path: str, body: object = None) -> str | None:
        try:
            answer = caller.call(method, path, body)
            told, job = str(answer.status), answer.body["id"] if answer.ok else None
        except Broken as error:
            told, job = str(error), None
        with self._changed:
            self.told[told] += 1
            self._changed.notify_all()
        return job


def test_a_rolling_restart_of_the_apis_fails_no_request() -> None:
    with real_servers() as folder, running(folder, Size(shards=2, apis=3, schedulers=1, workers=2)) as cluster:
        traffic = Traffic(cluster.port)
        traffic.start()
        with ExitStack() as undo:
            undo.callback(traffic.stop)
            traffic.go_on(BETWEEN)
            for _ in range(2):
                roll(cluster, traffic)
        assert set(traffic.told) == {"200", "201"}, traffic.told
        check_ended(cluster, traffic.jobs)


def roll(cluster: Cluster, traffic: Traffic) -> None:
    for api in cluster.apis:
        api.ask_to_stop()
        assert api.wait() == 0
        api.start()
        traffic.go_on(BETWEEN)


def check_ended(cluster: Cluster, jobs: list[str]) -> None:
    """Every job that was acknowledged has ended well, and there are no others."""
    caller = Caller(cluster.port)
    assert wait_until_ended(caller, 90)
    assert sorted(job.id for job in collect_jobs(caller) if job.state == "succeeded") == sorted(jobs)
    caller.close()
