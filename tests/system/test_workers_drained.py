"""`penstock workers drain`: a worker finishes what it runs, for as long as that takes, and ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import Client
from tests.system.harness import WITHIN, Server, WorkerProcess, ending, eventually, ledger, wait_for_ledger

FAST_BEATS = {"PENSTOCK_TIMING_LEASE_SECONDS": "2", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5"}


@pytest.mark.slow
def test_a_busy_worker_that_is_asked_to_drain_finishes_its_job_and_ends(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types", app=None, environ=FAST_BEATS)
    with ending(server), Client(server.url) as client:
        worker = WorkerProcess(server.url, tmp_path)
        with ending(worker):
            job = client.submit("hold").id
            wait_for_ledger(tmp_path, lambda: any(line["what"] == "start" for line in ledger(tmp_path)) or None)
            (known,) = eventually("it reports its job", lambda: [one for one in client.workers() if one.running])
            said = drain(server.url, known.id)
            assert (said.returncode, said.stdout) == (0, f"worker {known.id} is asked to drain; it runs 1 jobs\n")
            eventually("it drains", lambda: [one for one in client.workers() if one.state == "draining"])
            later = client.submit("mark", {"n": 1}).id
            (tmp_path / "go").touch()
            done = client.wait(job, timeout=30)
            assert (done.state, done.attempt) == ("succeeded", 1)
            assert worker.popen.wait(WITHIN) == 0
            assert client.workers() == ()
            assert client.get(later).state == "queued"
        refused = drain(server.url, known.id)
        assert (refused.returncode, "there is no worker" in refused.stderr) == (1, True)


def drain(url: str, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "workers", "drain", name, "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
