"""G1 and G2: whatever was acknowledged is there, once, when the server is killed in mid-work."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from penstock.client import Client
from tests.system.harness import Server, ending, eventually, ledger, wait_for_ledger

JOBS = 10_000
CLIENTS = 8
KILLS = 3
SHORT_LEASE = {"PENSTOCK_TIMING_LEASE_SECONDS": "3", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "1"}


class Acknowledged:
    """Ids by key, as the clients were told."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}
        self._lock = threading.Condition()

    def add(self, n: int, job: str) -> None:
        with self._lock:
            self.ids[n] = job
            self._lock.notify_all()

    def reach(self, count: int) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.ids) >= count, timeout=100)


def submit_share(url: str, numbers: range, acknowledged: Acknowledged) -> None:
    with Client(url, patience=30) as client:
        for n in numbers:
            acknowledged.add(n, client.submit("mark", {"n": n}, key=f"job-{n}").id)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_keyed_submits_survive_kill_9_of_the_server(tmp_path: Path) -> None:
    servers = [Server(tmp_path / "data", environ=SHORT_LEASE)]
    url, port = servers[0].url, servers[0].port
    acknowledged, rng = Acknowledged(), random.Random(2026)
    with ThreadPoolExecutor(CLIENTS) as clients:
        shares = [
            clients.submit(submit_share, url, range(start, JOBS, CLIENTS), acknowledged) for start in range(CLIENTS)
        ]
        try:
            for kill in range(KILLS):
                acknowledged.reach(JOBS * (kill + 1) // (KILLS + 1) + rng.randrange(500))
                servers[-1].kill()
                servers.append(Server(tmp_path / "data", port=port, environ=SHORT_LEASE))
            for share in shares:
                share.result()
            check(url, acknowledged)
        finally:
            for server in servers:
                server.end()


def check(url: str, acknowledged: Acknowledged) -> None:
    with Client(url) as client:
        ended = eventually("all have ended", lambda: all_succeeded(client), within=100)
        assert ended == {"succeeded": JOBS}
        found = {str(job.id): job for job in client.list()}
    assert len(found) == JOBS
    assert set(acknowledged.ids.values()) == set(found)
    for n, job in acknowledged.ids.items():
        assert found[job].result == n


def all_succeeded(client: Client) -> dict[str, int] | None:
    (queue,) = [queue for queue in client.queues() if queue.name == "mark"]
    states = {str(state): jobs for state, jobs in queue.jobs.items() if jobs}
    return states if states.keys() <= {"succeeded", "failed", "cancelled", "expired"} else None


def test_what_was_queued_when_the_server_died_is_done_by_the_next(tmp_path: Path) -> None:
    first = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types")
    with ending(first), Client(first.url) as client:
        ids = [client.submit("mark", {"n": n}).id for n in range(5)]
        first.kill()
        second = Server(tmp_path / "data", port=first.port)
        with ending(second):
            assert [client.wait(job, timeout=30).state for job in ids] == ["succeeded"] * 5


@pytest.mark.slow
def test_a_job_runs_on_through_crashes_of_its_server_and_what_it_did_is_kept(tmp_path: Path) -> None:
    servers = [Server(tmp_path / "data", "--executors", "1")]
    try:
        with Client(servers[0].url) as client:
            job = client.submit("hold").id
            wait_for_ledger(tmp_path, lambda: ledger(tmp_path))
            for _ in range(KILLS):
                servers[-1].kill()
                servers.append(Server(tmp_path / "data", "--executors", "1", port=servers[0].port))
                started = datetime.now(UTC)
                eventually("its worker is heard of", partial(any_seen, client, started))
            (tmp_path / "go").touch()
            ended = client.wait(job, timeout=60)
    finally:
        (tmp_path / "go").touch()
        for server in servers:
            server.end()
    assert (ended.state, ended.result, ended.attempt) == ("succeeded", 1, 1)
    assert [line["what"] for line in ledger(tmp_path)] == ["start", "end"]


def any_seen(client: Client, since: datetime) -> bool:
    return any(worker.seen_at is not None and worker.seen_at > since for worker in client.workers())
