"""Handlers that crash, hang or eat: each ends as documented, and its neighbours are unhurt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Client
from tests.system.harness import Server, ending, ledger, wait_for_ledger

LIMITS = {"PENSTOCK_WORKER_GRACE_SECONDS": "0.5", "PENSTOCK_WORKER_MEMORY_MIB": "400"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "data", "--executors", "2", "--capacity", "16", environ=LIMITS)
    with ending(server), Client(server.url) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type_name", "reason"),
    [("segfault", "crashed"), ("leave", "crashed"), ("eat", "out_of_memory"), ("block", "timeout")],
)
def test_a_handler_that_destroys_its_executor_is_charged_alone(
    client: Client, tmp_path: Path, type_name: str, reason: str
) -> None:
    neighbours = [client.submit("neighbour").id for _ in range(4)]
    wait_for_ledger(tmp_path, lambda: len(ledger(tmp_path)) >= 4)
    guilty = client.submit(type_name).id
    ended = client.wait(guilty, timeout=60)
    assert (ended.state, ended.reason, ended.attempt) == ("failed", reason, 1)
    (tmp_path / "go").touch()
    for job in neighbours:
        unhurt = client.wait(job, timeout=60)
        assert (unhurt.state, unhurt.result, unhurt.attempt) == ("succeeded", "unhurt", 1)


@pytest.mark.slow
def test_one_that_ignores_cancel_is_killed_after_the_grace(client: Client, tmp_path: Path) -> None:
    job = client.submit("stubborn").id
    wait_for_ledger(tmp_path, lambda: ledger(tmp_path))
    assert client.cancel(job).state == "running"
    assert client.wait(job, timeout=30).state == "cancelled"
    assert client.wait(client.submit("mark", {"n": 1}).id, timeout=30).state == "succeeded"


@pytest.mark.slow
def test_a_job_that_kills_its_process_three_times_is_poison(client: Client, tmp_path: Path) -> None:
    ended = client.wait(client.submit("deadly").id, timeout=60)
    assert (ended.state, ended.reason) == ("failed", "poison")
    assert len({line["fence"] for line in ledger(tmp_path)}) == 3


@pytest.mark.slow
def test_a_job_that_kills_its_worker_is_charged_alone(tmp_path: Path) -> None:
    timing = {"PENSTOCK_TIMING_LEASE_SECONDS": "1.5", "PENSTOCK_TIMING_REAP_SECONDS": "0.3"}
    limits = {**timing, "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5", "PENSTOCK_FLEET_MAX": "1"}
    server = Server(tmp_path / "data", "--executors", "1", environ=limits)
    with ending(server), Client(server.url) as client:
        guilty = client.submit("fell").id
        neighbours = [client.submit("doze", {"seconds": 1.0}).id for _ in range(4)]
        ended = client.wait(guilty, timeout=120)
        assert (ended.state, ended.reason) == ("failed", "poison")
        assert ended.error is not None
        assert ended.error.code == "worker_lost"
        assert [client.wait(job, timeout=60).state for job in neighbours] == ["succeeded"] * 4
    starts = [line["job"] for line in ledger(tmp_path)]
    assert 3 <= starts.count(guilty) <= 4
    assert max(map(starts.count, neighbours)) > 1
