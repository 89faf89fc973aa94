"""G4 and G5: a worker that slept through its lease is not listened to when it wakes."""

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.client import Client
from tests.system.harness import WITHIN, Server, WorkerProcess, ending, ledger, wait_for_ledger
from tests.watch import wait_for_ends

SHORT_LEASE = {"PENSTOCK_TIMING_LEASE_SECONDS": "2", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5"}


@pytest.mark.slow
def test_a_paused_worker_loses_its_job_and_its_settle_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types", app=None, environ=SHORT_LEASE)
    with ending(server), Client(server.url) as client:
        sleeper = WorkerProcess(server.url, tmp_path)
        with ending(sleeper):
            job = client.submit("hold").id
            (first,) = wait_for_ledger(tmp_path, lambda: starts(tmp_path, 1))
            sleeper.signal_all(signal.SIGSTOP)
            heir = WorkerProcess(server.url, tmp_path)
            with ending(heir):
                _, second = wait_for_ledger(tmp_path, lambda: starts(tmp_path, 2))
                assert second["fence"] > first["fence"]
                (tmp_path / "go").touch()
                ended = client.wait(job, timeout=30)
                sleeper.signal_all(signal.SIGCONT)
                sleeper.says("lost", "refused")
                # It threw its outcome away by itself. Had it not, the fence would have refused it:
                assert settle(server.url, job, first["fence"]) == [
                    {"job": job, "fence": first["fence"], "loss": "lost"}
                ]
                assert client.get(job) == ended
                assert (ended.state, ended.fence) == ("succeeded", second["fence"])
                assert ended.result == second["fence"]
                assert client.output(job, "fence.txt") == str(second["fence"]).encode()
                heir.stop()
                # The one that slept is well again and takes new work.
                assert client.wait(client.submit("mark", {"n": 1}).id, timeout=30).state == "succeeded"


def settle(url: str, job: str, fence: int) -> Any:
    """What the server answers to a worker that says it has done the job under this fence."""
    outcomes = [{"job": job, "fence": fence, "result": "written by a zombie"}]
    answer = httpx2.post(f"{url}/v1/workers/zombie/settle", json={"outcomes": outcomes})
    return answer.json()["refused"]


def starts(folder: Path, count: int) -> list[dict[str, Any]] | None:
    found = [line for line in ledger(folder) if line["what"] == "start"]
    return found if len(found) >= count else None


@pytest.mark.slow
def test_a_killed_worker_s_job_finishes_elsewhere(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types", app=None, environ=SHORT_LEASE)
    with ending(server), Client(server.url) as client:
        doomed = WorkerProcess(server.url, tmp_path)
        with ending(doomed):
            job = client.submit("hold").id
            wait_for_ledger(tmp_path, lambda: starts(tmp_path, 1))
            below = doomed.tree()[1:]
            doomed.kill()
            wait_for_ends([process.pid for process in below], WITHIN)
            heir = WorkerProcess(server.url, tmp_path)
            with ending(heir):
                (tmp_path / "go").touch()
                assert client.wait(job, timeout=30).state == "succeeded"
