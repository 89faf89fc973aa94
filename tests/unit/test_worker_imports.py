"""What a worker process loads: one that holds a URL and a key needs nothing of the server's side."""

import subprocess
import sys

SERVER_SIDE = ("engine", "orchestrator", "store", "broker", "objects", "api", "scheduler", "autoscaler")
MOST_MODULES = 79

LOADED = """
import sys
from penstock.cli.worker import worker
from penstock.runtime import work
print(*(name for name in sys.modules if name.startswith("penstock")))
"""


def test_a_worker_over_http_loads_nothing_of_the_server_and_few_modules() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "penstock.worker.http_api" in loaded
    assert [name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in SERVER_SIDE] == []
    assert len(loaded) <= MOST_MODULES
