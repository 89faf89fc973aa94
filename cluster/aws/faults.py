"""What is done to the stack while it is loaded, and how long each was felt."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import psutil
from msgspec import Struct

from cluster.aws.cloud import STACK, Cloud
from cluster.aws.topic import Subscriber
from cluster.board import Board
from cluster.clients import Supply
from cluster.records import Entry, Event
from cluster.recovery import Course
from servers.launch import on_path

FOUND_WITHIN = 90.0
"""How long what is to be killed may take to be there: a schedule invokes the sweep each minute."""
WELL_WITHIN = 120.0
BURST = 40
CONTAINER_NAMES = "ministack-ecs-"
TYPES = ("report", "thumbnail")


class AwsFault(StrEnum):
    CONTAINER = "container killed"
    SWEEP = "sweep killed"
    PUBLISHER = "publisher killed"
    PURGE = "queues purged"


BARS = {
    AwsFault.CONTAINER: 45.0,
    AwsFault.SWEEP: 60.0,
    AwsFault.PUBLISHER: 60.0,
    AwsFault.PURGE: 60.0,
}
"""In seconds. The schedule of a minute is the net below all of them; a lost lease is found by the sweeps in between."""

MEANINGS = {
    AwsFault.CONTAINER: "longest time until a job that it ran, or any that was due, was started again",
    AwsFault.SWEEP: "longest time until a job that was due then was started",
    AwsFault.PUBLISHER: "time until the topic told the next change",
    AwsFault.PURGE: "longest time until a job that was due then was started",
}


class AwsHarm(Struct, frozen=True):
    """One fault, and what it hit."""

    fault: AwsFault
    at: float
    worker: str | None = None


class AwsRecovery(Struct, frozen=True):
    """`seconds` is None when nothing was there to measure."""

    fault: AwsFault
    seconds: float | None

    @property
    def kept(self) -> bool:
        return self.seconds is not None and self.seconds <= BARS[self.fault]


class NotFelt(Exception):
    """What was to be hurt did not come to be, or the system was not well again in time."""


class AwsFaults:
    """Inflicts faults, one after the other."""

    def __init__(self, cloud: Cloud, board: Board, supply: Supply) -> None:
        self._cloud = cloud
        self._board = board
        self._supply = supply
        self._pause = threading.Event()

    def inflict(self, fault: AwsFault) -> AwsHarm:
        """Do it, and wait until all jobs that were open then have ended; NotFelt if that takes too long."""
        harm = self._inflict(fault)
        opened = set(self._board.open_jobs)
        if not self._board.wait_for(lambda: opened <= self._board.ended, WELL_WITHIN):
            left = len(opened - self._board.ended)
            raise NotFelt(f"{fault}: {left} jobs that were open then have not ended within {WELL_WITHIN:g} s")
        return harm

    def _inflict(self, fault: AwsFault) -> AwsHarm:
        match fault:
            case AwsFault.CONTAINER:
                return self._kill_container()
            case AwsFault.SWEEP:
                return self._kill_function(fault, "sweep")
            case AwsFault.PUBLISHER:
                return self._kill_function(fault, "publish")
            case AwsFault.PURGE:
                return self._purge()

    def _kill_container(self) -> AwsHarm:
        """Kill the container of a worker that has a job under way."""
        found: list[tuple[str, str]] = []

        def find() -> bool:
            containers = self._members()
            at_work = self._board.at_work()
            found[:] = [(containers[key], one) for one in at_work if (key := one.partition("-")[0]) in containers]
            return bool(found)

        self._await(find, "no container runs a job")
        container, worker = found[0]
        at = time.monotonic()
        self._podman("kill", "--signal", "KILL", container)
        return AwsHarm(AwsFault.CONTAINER, at, worker)

    def _kill_function(self, fault: AwsFault, name: str) -> AwsHarm:
        """Kill the processes of a function, whatever they do."""
        self._await(lambda: bool(self._cloud.functions(name)), f"no process runs {name}")
        at = time.monotonic()
        for process in self._cloud.functions(name):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return AwsHarm(fault, at)

    def _purge(self) -> AwsHarm:
        """Delete every ticket, in the middle of a burst of jobs."""
        before = len(self._board.acknowledged)
        self._supply.hurry(BURST)
        self._board.wait_for(lambda: len(self._board.acknowledged) >= before + BURST // 2, WELL_WITHIN)
        queues = self._cloud.client("sqs")
        at = time.monotonic()
        for name in TYPES:
            queues.purge_queue(QueueUrl=queues.get_queue_url(QueueName=f"{STACK}-{name}")["QueueUrl"])
        return AwsHarm(AwsFault.PURGE, at)

    def containers(self) -> list[str]:
        """The ids of the containers that run."""
        return self._podman("ps", "--quiet", "--no-trunc").split()

    def _members(self) -> dict[str, str]:
        """Running containers by the beginning of the ids of their tasks, which is part of their names."""
        rows = (row.split() for row in self._podman("ps", "--format", "{{.ID}} {{.Names}}").splitlines())
        return {name.split("-")[2]: container for container, name in rows if name.startswith(CONTAINER_NAMES)}

    def _podman(self, *words: str) -> str:
        command = [on_path("podman", "podman"), *words]
        environ = dict(self._cloud.podman.environ())
        return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=60).stdout

    def _await(self, true: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + FOUND_WITHIN
        while not true():
            if time.monotonic() > deadline:
                raise NotFelt(f"{otherwise} within {FOUND_WITHIN:g} s")
            self._pause.wait(0.05)


def measure(
    harms: Sequence[AwsHarm], events: Sequence[Event], ledger: Sequence[Entry], subscriber: Subscriber
) -> list[AwsRecovery]:
    """How long each fault was felt, from histories, ledger and topic alone."""
    course = Course(events, ledger)
    return [AwsRecovery(harm.fault, max(_felt(harm, course, subscriber), default=None)) for harm in harms]


def _felt(harm: AwsHarm, course: Course, subscriber: Subscriber) -> Iterator[float]:
    if harm.fault is AwsFault.PUBLISHER:
        after = subscriber.first_after(harm.at)
        yield from () if after is None else (after - harm.at,)
        return
    for job, due in course.due():
        begun = course.begun_before(job, harm.at)
        lost = begun is not None and begun.worker == harm.worker
        started = course.started_after(job, harm.at)
        if started is not None and due <= harm.at and (begun is None or lost):
            yield started - harm.at
