"""What a part measures: a real server and worker, as `penstock up` starts them, and a client, in a fresh folder."""

import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from penstock.client import Client, JobSpec
from penstock.lab.bench.startlog import JobStart, StartLog
from penstock.lab.children import ChildFailed, Children
from penstock.model.job import DEFAULT_PRIORITY
from penstock.model.lifecycle import State

APP = "penstock.lab.bench.app:app"
TYPE = "noop"
PAD = "x" * 64
"""Brings the params to about a hundred bytes."""

BATCH = 1_000
START_SECONDS = 30.0
DRAIN_SECONDS = 60.0
SLOWEST = 500.0
"""A drain below so many jobs per second is given up."""


ONE_WORKER = MappingProxyType({"PENSTOCK_FLEET_MIN": "1", "PENSTOCK_FLEET_MAX": "1"})
FROM_ZERO = MappingProxyType({"PENSTOCK_FLEET_MIN": "0", "PENSTOCK_FLEET_MAX": "1"})


@dataclass(frozen=True, slots=True)
class Rig:
    """A running system. `pid` is the server's; its worker and the worker's executors are its descendants."""

    url: str
    pid: int
    client: Client
    starts: StartLog

    def load(self, jobs: int, delay: timedelta | None = None, due_at: datetime | None = None) -> float:
        """Submit no-op jobs in bulk; the seconds it took."""
        began = time.monotonic()
        for first in range(0, jobs, BATCH):
            self.client.submit_many(specs(first, min(BATCH, jobs - first), delay, due_at))
        return time.monotonic() - began

    def drained(self, jobs: int, *, behind: int = 0) -> list[JobStart]:
        """Submit jobs while their queue is paused, let them go, and give back the starts of the first `jobs`.

        `behind` more are loaded after them, to be in the way.
        """
        self.starts.clear()
        self.client.pause(TYPE)
        self.load(jobs + behind)
        self.client.resume(TYPE)
        self._wait_for(jobs)
        return self.starts.starts()[:jobs]

    def waiting(self, state: State) -> int:
        """How many no-op jobs are in a state now."""
        return next((queue.jobs.get(state, 0) for queue in self.client.queues() if queue.name == TYPE), 0)

    def settle_down(self, jobs: int) -> None:
        """Wait until so many have started since the last measurement began, so that nothing disturbs the next."""
        self._wait_for(jobs)

    def _wait_for(self, jobs: int) -> None:
        patience = patience_for(jobs)
        if not self.starts.wait_for(jobs, patience):
            raise ChildFailed(f"only {self.starts.count():,} of {jobs:,} jobs started in {patience:.0f} s")


class Engines(Struct, frozen=True):
    """Where the rigs keep jobs and tickets: on these servers, or embedded where nothing is said."""

    store: str | None = None
    broker: str | None = None

    @contextmanager
    def environ(self) -> Iterator[dict[str, str]]:
        """The settings of one system that shares nothing with any other; what was made for it is gone afterwards."""
        rng = random.Random()
        with ExitStack() as stack:
            found: dict[str, str] = {}
            if self.store:
                from penstock.store.postgres.scratch import scratch_database

                found["PENSTOCK_STORE_URL"] = stack.enter_context(scratch_database(self.store, rng))
            if self.broker:
                prefix = f"bench-{rng.getrandbits(48):012x}"
                found |= {"PENSTOCK_BROKER_URL": self.broker, "PENSTOCK_BROKER_PREFIX": prefix}
            yield found


class Workshop:
    """Makes rigs. `flags` go to each server's `penstock up`."""

    def __init__(self, folder: Path, flags: Sequence[str], engines: Engines | None = None) -> None:
        self.folder = folder
        self.flags = tuple(flags)
        self.engines = engines or Engines()

    @contextmanager
    def rig(self, fleet: Mapping[str, str] = ONE_WORKER) -> Iterator[Rig]:
        """A fresh system, warmed up by one job; gone afterwards. It has one worker, always, unless told otherwise."""
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            starts = StartLog(place / "starts")
            environ = stack.enter_context(self.engines.environ())
            children = Children(place, {**starts.environ, **environ, **fleet})
            process, url = stack.enter_context(children.server(APP, "--data", "data", *self.flags))
            client = stack.enter_context(Client(url))
            rig = Rig(url, process.pid, client, starts)
            _warm_up(rig)
            yield rig


def patience_for(jobs: int) -> float:
    """The seconds after which so many jobs should long have started."""
    return max(DRAIN_SECONDS, jobs / SLOWEST)


def specs(first: int, jobs: int, delay: timedelta | None = None, due_at: datetime | None = None) -> Iterator[JobSpec]:
    """No-op jobs to submit, about a hundred bytes each; expected when they are due, if that is said."""
    expected_at = due_at.timestamp() if due_at else 0.0
    for number in range(first, first + jobs):
        yield {
            "type": TYPE,
            "params": {"number": number, "expected_at": expected_at, "pad": PAD},
            "delay": delay,
            "scheduled_at": due_at,
            "priority": DEFAULT_PRIORITY,
        }


def _warm_up(rig: Rig) -> None:
    rig.load(1)
    if not rig.starts.wait_for(1, START_SECONDS):
        raise ChildFailed(f"the first job did not start in {START_SECONDS:.0f} s")
