"""The system that the demo runs on: a server that starts workers as needed, and a client, in a temporary folder."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.client import Client
from penstock.lab.children import Children
from penstock.model.clock import Clock
from penstock.model.errors import PenstockError

APP = "penstock.lab.demo.jobs:app"

QUICK = {
    "PENSTOCK_TIMING_LEASE_SECONDS": "2",
    "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5",
    "PENSTOCK_TIMING_REAP_SECONDS": "0.25",
    "PENSTOCK_WORKER_GRACE_SECONDS": "1",
    "PENSTOCK_WORKER_EXECUTORS": "1",
    "PENSTOCK_FLEET_CAPACITY": "64",
    "PENSTOCK_FLEET_MAX": "2",
}
"""Shorter than the defaults, so that a lost worker is noticed in 2 seconds instead of 15."""


@dataclass(frozen=True, slots=True)
class DemoStage:
    """Everything a chapter needs."""

    client: Client
    url: str
    folder: Path
    clock: Clock

    def kill(self, worker: str) -> int:
        """Kill a worker's process (SIGKILL); its process id."""
        pid = next(known.pid for known in self.client.workers() if known.id == worker)
        os.kill(pid, signal.SIGKILL)
        return pid

    def workers(self, fleet: str) -> int:
        """How many workers of a fleet are there now."""
        return sum(known.id.startswith(f"{fleet}-") for known in self.client.workers())


@contextmanager
def open_stage(clock: Clock) -> Iterator[DemoStage]:
    """Start the server; afterwards its processes have ended and its folder is removed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        _, url = stack.enter_context(Children(folder, QUICK).server(APP, "--data", "data"))
        yield DemoStage(stack.enter_context(Client(url)), url, folder, clock)


PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.05


class NotAsTold(PenstockError):
    """Something did not happen as the story tells it."""

    code = "not_as_told"


def until(what: str, holds: Callable[[], bool], clock: Clock) -> None:
    """Wait until it holds; NotAsTold if that takes too long."""
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while not holds():
        if clock.monotonic() > deadline:
            raise NotAsTold(f"waited {PATIENCE_SECONDS:g} s in vain until {what}")
        time.sleep(LOOK_SECONDS)


def expect(what: str, holds: bool) -> None:
    """Raise NotAsTold unless it holds."""
    if not holds:
        raise NotAsTold(f"not as told: {what}")
