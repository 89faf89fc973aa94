"""What every part of the bench uses: figures, amounts of work, and a system to measure.

The system is a real server and worker, as `penstock up` starts them, and a client, in a fresh folder.
"""

import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from penstock.client import Client, JobSpec
from penstock.lab.bench.app import JobStart, StartLog
from penstock.lab.children import ChildFailed, Children
from penstock.model.job import DEFAULT_PRIORITY
from penstock.model.lifecycle import State


class Figure(Struct, frozen=True):
    """One number with its unit. `note` says what is odd about it, or what it is compared with."""

    part: str
    name: str
    value: float
    unit: str
    note: str = ""


class Amounts(Struct, frozen=True, kw_only=True):
    """How much work each part does. `scaled` changes the size; what would take too long only ever shrinks.

    Ten times the size has a million scheduled jobs wait in the growth part.
    """

    drain_jobs: int = 40_000
    submit_seconds: float = 3.0
    bulk_jobs: int = 40_000
    latency_jobs: int = 250
    due_jobs: int = 100
    crowd_jobs: int = 100_000
    few_jobs: int = 10_000
    scheduled_jobs: int = 100_000
    queued_jobs: int = 200_000
    zero_jobs: int = 20
    idle_seconds: float = 10.0
    starts: int = 5
    readers: int = 500
    events_per_second: int = 1_000
    events_seconds: float = 10.0

    def scaled(self, scale: float, drain_jobs: int | None) -> "Amounts":
        """The same in another size, but never too small for a meaningful figure."""
        return Amounts(
            drain_jobs=drain_jobs or _scaled(self.drain_jobs, scale),
            submit_seconds=max(0.5, self.submit_seconds * min(1.0, scale)),
            bulk_jobs=_scaled(self.bulk_jobs, scale),
            latency_jobs=_scaled(self.latency_jobs, min(1.0, scale), 50),
            due_jobs=_scaled(self.due_jobs, min(1.0, scale), 20),
            crowd_jobs=_scaled(self.crowd_jobs, scale),
            few_jobs=_scaled(self.few_jobs, min(1.0, scale), 500),
            scheduled_jobs=_scaled(self.scheduled_jobs, scale),
            queued_jobs=_scaled(self.queued_jobs, min(1.0, scale)),
            zero_jobs=_scaled(self.zero_jobs, min(1.0, scale), 3),
            idle_seconds=max(1.0, self.idle_seconds * min(1.0, scale)),
            starts=max(3, round(self.starts * min(1.0, scale))),
            readers=max(20, round(self.readers * min(1.0, scale))),
            events_per_second=max(100, round(self.events_per_second * min(1.0, scale))),
            events_seconds=max(1.0, self.events_seconds * min(1.0, scale)),
        )


def _scaled(count: int, scale: float, least: int = 1_000) -> int:
    return max(least, round(count * scale))


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

    def drain(self, jobs: int, *, behind: int = 0) -> list[JobStart]:
        """Submit jobs while their queue is paused, resume it, and return the starts of the first `jobs`.

        `behind` more are submitted after them, as backlog.
        """
        self.starts.clear()
        self.client.pause(TYPE)
        self.load(jobs + behind)
        self.client.resume(TYPE)
        self.wait_for_starts(jobs)
        return self.starts.starts()[:jobs]

    def count_waiting(self, state: State) -> int:
        """How many no-op jobs are in a state now."""
        return next((queue.jobs.get(state, 0) for queue in self.client.queues() if queue.name == TYPE), 0)

    def wait_for_starts(self, jobs: int) -> None:
        """Wait until so many jobs have started since the log was cleared; ChildFailed if that takes too long."""
        patience = patience_for(jobs)
        if not self.starts.wait_for(jobs, patience):
            raise ChildFailed(f"only {self.starts.count():,} of {jobs:,} jobs started in {patience:.0f} s")


class Engines(Struct, frozen=True):
    """Where the rigs keep jobs and tickets: on these servers, or embedded where nothing is said."""

    store: str | None = None
    broker: str | None = None

    @contextmanager
    def environ(self) -> Iterator[dict[str, str]]:
        """The settings of one system that shares nothing with any other; its database is dropped afterwards."""
        rng = random.Random()
        with ExitStack() as stack:
            found: dict[str, str] = {}
            if self.store:
                found["PENSTOCK_STORE_URL"] = stack.enter_context(scratch_database(self.store, rng))
            if self.broker:
                prefix = f"bench-{rng.getrandbits(48):012x}"
                found |= {"PENSTOCK_BROKER_URL": self.broker, "PENSTOCK_BROKER_PREFIX": prefix}
            yield found


@contextmanager
def scratch_database(url: str, rng: random.Random) -> Iterator[str]:
    """Create an empty database on the server of this URL, for one run; gives its URL and drops it afterwards.

    Raises StoreUnavailable if it cannot be created.
    """
    import psycopg
    from psycopg import sql

    from penstock.store.postgres.connection import PostgresAddress, unavailable

    name = f"penstock_scratch_{rng.getrandbits(48):012x}"
    address = PostgresAddress.parse(url)
    try:
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
            finally:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise unavailable(address, error) from error


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
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            starts = StartLog(folder / "starts")
            environ = stack.enter_context(self.engines.environ())
            children = Children(folder, {**starts.environ, **environ, **fleet})
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
