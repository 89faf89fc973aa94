"""A PostgreSQL shard put back from a backup under load, while the server and its workers run on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from penstock.model.errors import NotFound, PenstockError
from servers import Postgres
from tests.servers_fixtures import real_servers
from tests.system.harness import WITHIN, Server, WorkerProcess, ending, ledger, wait_for_ledger

HELD = 5
KEYS = 3
"""So many keys of the backup, and of those it lacks, are looked at."""
# A lease outlasts the outage on a busy machine too: a worker whose leases end meanwhile kills its attempts by itself,
# and none of them shows an old fence any more.
TIMING = {"PENSTOCK_TIMING_LEASE_SECONDS": "120", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5"}


class Load:
    """Keyed submits without a pause: the keys in the order they were asked for, and the jobs of those acknowledged."""

    def __init__(self, url: str) -> None:
        self.jobs: dict[str, str] = {}
        self.asked: list[str] = []
        self._url = url
        self._stop = threading.Event()
        self._asked_more = threading.Condition()
        self._thread = threading.Thread(target=self._submit)

    def _submit(self) -> None:
        with Client(self._url) as client:
            while not self._stop.is_set():
                key = f"load-{len(self.asked)}"
                with self._asked_more:
                    self.asked.append(key)
                    self._asked_more.notify_all()
                try:
                    self.jobs[key] = client.submit("mark", {"n": len(self.asked)}, key=key).id
                except PenstockError:
                    self._stop.wait(0.1)

    def wait_for(self, count: int) -> None:
        """Return once more than this many were asked for."""
        with self._asked_more:
            assert self._asked_more.wait_for(lambda: len(self.asked) > count, WITHIN)

    @contextmanager
    def going(self) -> Iterator["Load"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def starts(folder: Path) -> dict[str, list[int]]:
    """The fences under which each job was started."""
    found: dict[str, list[int]] = {}
    for line in ledger(folder):
        if line["what"] == "start":
            found.setdefault(line["job"], []).append(line["fence"])
    return found


def is_there(client: Client, job: str) -> bool:
    try:
        client.get(job)
    except NotFound:
        return False
    return True


@pytest.mark.slow
def test_a_shard_put_back_under_load_records_only_what_the_highest_fence_did(tmp_path: Path) -> None:
    with real_servers() as folder, Postgres(folder / "postgres", settings={"fsync": "off"}) as postgres:
        environ = {**TIMING, "PENSTOCK_STORE_URL": postgres.url()}
        server = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types", app=None, environ=environ)
        with ending(server), Client(server.url, patience=60) as client, Load(server.url).going() as load:
            held = [client.submit("hold").id for _ in range(HELD)]
            load.wait_for(KEYS)
            before = dict(load.jobs)
            postgres.back_up(folder / "backup")
            since = len(load.asked)
            ran_on = WorkerProcess(server.url, tmp_path)
            with ending(ran_on):
                lost = client.submit("hold").id
                wait_for_ledger(tmp_path, lambda: len(starts(tmp_path)) == HELD + 1)
                load.wait_for(since + 20)
                after = {key: load.jobs[key] for key in load.asked[since + 1 : since + 10] if key in load.jobs}
                postgres.kill()
                postgres.restore(folder / "backup")
                postgres.start()
                server.says("the shard's epoch is")
                wait_for_ledger(tmp_path, lambda: all(len(starts(tmp_path)[job]) == 2 for job in held))
                (tmp_path / "go").touch()
                ended = [client.wait(job, timeout=60) for job in held]
                ran_on.says("lost", "gone", "refused")
                assert all(is_there(client, job) for job in before.values())
                assert not any(is_there(client, job) for job in (lost, *after.values()))
                check_outcomes(client, ended, starts(tmp_path))
                check_keys(client, before, after)


def check_outcomes(client: Client, ended: list[Any], fences: dict[str, list[int]]) -> None:
    """Each job was started twice, under two fences; result and output are those of the second."""
    for job in ended:
        first, second = fences[job.id]
        assert first < second
        assert (job.state, job.fence, job.result, job.attempt) == ("succeeded", second, second, 1)
        assert client.output(job.id, "fence.txt") == str(second).encode()


def check_keys(client: Client, before: dict[str, str], after: dict[str, str]) -> None:
    """A key that the backup has gives its job back; one that it lacks is free, and makes a new one."""
    assert before
    assert after
    for key, job in list(before.items())[-KEYS:]:
        n = int(key.removeprefix("load-")) + 1
        assert client.submit("mark", {"n": n}, key=key).id == job
    for key, job in list(after.items())[:KEYS]:
        n = int(key.removeprefix("load-")) + 1
        assert client.submit("mark", {"n": n}, key=key).id != job
