"""Where the story plays: a server, two workers and a client, in a temporary folder."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.children import ChildFailed, Children
from penstock.cli.demo.waiting import until
from penstock.client import Client
from penstock.model.timing import Clock
from penstock.model.workers import WorkerState

APP = "penstock.cli.demo.jobs:app"
WORKERS = ("worker-1", "worker-2")

QUICK = {
    "PENSTOCK_TIMING_LEASE_SECONDS": "2",
    "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5",
    "PENSTOCK_TIMING_REAP_SECONDS": "0.25",
    "PENSTOCK_WORKER_GRACE_SECONDS": "1",
}
"""Shorter than the defaults, so that nobody waits 15 seconds to see a dead worker noticed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything a chapter needs."""

    client: Client
    url: str
    folder: Path
    workers: tuple[subprocess.Popen[bytes], ...]
    clock: Clock

    def process_of(self, worker: str) -> subprocess.Popen[bytes]:
        """The process of a worker, by the id it goes by."""
        pid = next(known.pid for known in self.client.workers() if known.id == worker)
        return next(process for process in self.workers if process.pid == pid)


@contextmanager
def staged(clock: Clock) -> Iterator[Stage]:
    """A stage that is ready; afterwards its processes have ended and its folder is gone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        children = Children(folder, QUICK)
        _, url = stack.enter_context(children.server("--data", "data"))
        words = ("worker", APP, "--url", url, "--executors", "1", "--capacity", "64")
        workers = tuple(stack.enter_context(children.run(name, *words)) for name in WORKERS)
        client = stack.enter_context(Client(url))
        stage = Stage(client, url, folder, workers, clock)
        until("both workers are ready", lambda: _ready(stage), clock)
        yield stage


def _ready(stage: Stage) -> bool:
    if any(process.poll() is not None for process in stage.workers):
        words = (stage.folder / f"{WORKERS[0]}.log").read_text(errors="replace").strip()
        raise ChildFailed(f"a worker ended before the story began: {words}")
    return sum(worker.state is WorkerState.READY for worker in stage.client.workers()) == len(WORKERS)
