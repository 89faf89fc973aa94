"""The processes of a test: what a run that is killed has started ends with it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.system.harness import ROOT, WITHIN
from tests.watch import wait_for_ends

RUN = """
import sys
from pathlib import Path
from tests.system.harness import Server

server = Server(Path(sys.argv[1]) / "data")
print(*(process.pid for process in server.tree()), flush=True)
server.popen.wait()
"""


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_server_behind(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert run.stdout is not None
        with run.stdout:
            server, *below = map(int, run.stdout.readline().split())
        assert psutil.pid_exists(server)
    finally:
        run.kill()
        run.wait(WITHIN)
    wait_for_ends([server, *below], WITHIN)
