"""A fleet that is forced between nothing and everything while jobs run: none is lost, none is interrupted."""

import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.lifecycle import State
from tests.system.harness import WITHIN, Server, ending, ledger

pytestmark = pytest.mark.slow

FULL = "PENSTOCK_TEST_FULL" in os.environ
FLAPS, BATCHES = (12, 10) if FULL else (3, 3)
"""How often the fleet is scaled up and down, and how many batches of jobs are accepted between two changes."""

MOST = "3"
FLEET = {"PENSTOCK_FLEET_MAX": MOST, "PENSTOCK_FLEET_CAPACITY": "8", "PENSTOCK_WORKER_EXECUTORS": "1"}


def load(client: Client, over: threading.Event, made: list[str], accepted: threading.Semaphore) -> None:
    """Two jobs of 0.3 s every quarter of a second, until it is over: some workers are busy then, and some are not."""
    while not over.wait(0.25):
        batch = client.submit_many({"type": "doze", "params": {"seconds": 0.3}} for _ in range(2))
        made.extend(str(one.id) for one in batch)
        accepted.release()


@pytest.mark.timeout(240)
def test_a_fleet_forced_from_zero_to_all_and_back_interrupts_no_job(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environ=FLEET)
    over, made, accepted = threading.Event(), list[str](), threading.Semaphore(0)
    with ending(server), Client(server.url) as client, Client(server.url) as loading:
        loader = threading.Thread(target=load, args=(loading, over, made, accepted))
        loader.start()
        try:
            for _ in range(FLAPS):
                for count in (int(MOST), 0):
                    client.scale_fleet("default", count)
                    assert all(accepted.acquire(timeout=WITHIN) for _ in range(BATCHES))
        finally:
            over.set()
            loader.join()
        client.scale_fleet("default", "auto")
        for job in made:
            client.wait(job, timeout=WITHIN)
        jobs = list(client.list(type="doze", page_size=500))
        assert {job.id for job in jobs} == set(made)
        assert {(job.state, job.attempt) for job in jobs} == {(State.SUCCEEDED, 1)}
        fleet = client.get_fleet("default")
        assert fleet.started >= int(MOST)
        assert fleet.stopped > 0
    starts = Counter(entry["job"] for entry in ledger(tmp_path) if entry["what"] == "start")
    assert starts == Counter(made)
