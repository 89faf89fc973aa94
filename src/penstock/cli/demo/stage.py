"""Where the story plays: a server that starts workers as they are needed, and a client, in a temporary folder."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.children import Children
from penstock.client import Client
from penstock.model.timing import Clock

APP = "penstock.cli.demo.jobs:app"

QUICK = {
    "PENSTOCK_TIMING_LEASE_SECONDS": "2",
    "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5",
    "PENSTOCK_TIMING_REAP_SECONDS": "0.25",
    "PENSTOCK_WORKER_GRACE_SECONDS": "1",
    "PENSTOCK_WORKER_EXECUTORS": "1",
    "PENSTOCK_FLEET_CAPACITY": "64",
    "PENSTOCK_FLEET_MAX": "2",
}
"""Shorter than the defaults, so that nobody waits 15 seconds to see a dead worker noticed."""


@dataclass(frozen=True, slots=True)
class DemoStage:
    """Everything a chapter needs."""

    client: Client
    url: str
    folder: Path
    clock: Clock

    def kill(self, worker: str) -> int:
        """End a worker's process without a word (-9); its number."""
        pid = next(known.pid for known in self.client.workers() if known.id == worker)
        os.kill(pid, signal.SIGKILL)
        return pid

    def workers(self, fleet: str) -> int:
        """How many workers of a fleet are there now."""
        return sum(known.id.startswith(f"{fleet}-") for known in self.client.workers())


@contextmanager
def staged(clock: Clock) -> Iterator[DemoStage]:
    """A stage that is ready; afterwards its processes have ended and its folder is gone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        _, url = stack.enter_context(Children(folder, QUICK).server(APP, "--data", "data"))
        yield DemoStage(stack.enter_context(Client(url)), url, folder, clock)
