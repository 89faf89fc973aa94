"""Workers as processes of this machine, below the process that scales them. What `penstock up` uses."""

import asyncio
import math
import os
import random
import re
import signal
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

from penstock.autoscaler.backends.seam import MEMBER, Condition, FleetMember, LaunchSpec
from penstock.config import variable
from penstock.model.clock import Clock, seconds
from penstock.model.errors import FleetUnavailable, PenstockError, Refused

ASK_AGAIN: Final = seconds(1.0)
ASKED_TIMES: Final = 60
"""How many times, once a second, a worker is told to give its jobs back before it is killed."""

NOT_STARTED: Final = 1
UNUSABLE: Final = 2
"""The exit status of a worker that cannot use its app or settings."""


class Process(Protocol):
    """A worker process that this one started; `ended` gives its exit status, negative for a signal."""

    @property
    def pid(self) -> int: ...

    @property
    def ended(self) -> "asyncio.Future[int]": ...

    def signal(self, number: signal.Signals) -> None: ...


class Launch(Protocol):
    """Starts a worker for an app with the environment of its spec and its own settings."""

    def __call__(self, app: str, environment: Mapping[str, str], own: Mapping[str, str], /) -> Awaitable[Process]: ...


class WorkerProcess:
    """`run` it once; `drain` it at any time."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._started_at = clock.now()
        self._process: Process | None = None
        self._ended: tuple[int, str] | None = None
        self._draining = False
        self._give_back_at = float("inf")
        self._news = asyncio.Event()

    async def run(self, launched: Awaitable[Process]) -> None:
        """Start the process and wait for its end."""
        try:
            process = self._process = await launched
        except PenstockError as error:
            self._ended = (UNUSABLE if isinstance(error, Refused) else NOT_STARTED, error.message)
            return
        ending = asyncio.ensure_future(self._end(process))
        status = await process.ended
        ending.cancel()
        self._ended = (status, _how(process.pid, status))

    def drain(self, patience: timedelta | None) -> None:
        """Have it finish its jobs and end; sooner, if it was given longer before."""
        if patience is not None:
            self._give_back_at = min(self._give_back_at, self._clock.monotonic() + patience.total_seconds())
        self._draining = True
        self._news.set()

    def describe(self) -> FleetMember:
        status, detail = self._ended or (None, f"pid {self._process.pid}" if self._process is not None else "")
        return FleetMember(
            name=self._name,
            condition=self._condition(),
            started_at=self._started_at,
            exit_status=status,
            detail=detail,
        )

    def _condition(self) -> Condition:
        if self._ended is not None:
            return Condition.ENDED
        if self._draining:
            return Condition.ENDING
        return Condition.STARTING if self._process is None else Condition.RUNNING

    async def _end(self, process: Process) -> None:
        """Ask it to drain; when its patience is over, to give its jobs back; then kill it."""
        while not self._draining:
            await self._hear_news()
        process.signal(signal.SIGTERM)
        while (left := self._give_back_at - self._clock.monotonic()) > 0:
            await self._hear_news(left)
        # Repeated: a signal that arrives before the last one was handled is lost.
        for _ in range(ASKED_TIMES):
            process.signal(signal.SIGTERM)
            await self._clock.sleep(ASK_AGAIN)
        process.signal(signal.SIGKILL)

    async def _hear_news(self, longest: float = float("inf")) -> None:
        span = None if longest == float("inf") else longest
        with suppress(TimeoutError):
            async with asyncio.timeout(span):
                await self._news.wait()
        self._news.clear()


def _how(pid: int, status: int) -> str:
    if status == UNUSABLE:
        return f"pid {pid}: its app or settings cannot be used; see its log"
    return f"pid {pid}: exited with status {status}" if status >= 0 else f"pid {pid}: killed by {_signal_name(-status)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


LONGEST_DRAIN_SECONDS: Final = 31_536_000
"""A drain without limit for the worker: how long running jobs may take is decided here."""

EXECUTORS: Final = variable("worker.executors")


def own_environment(spec: LaunchSpec, name: str) -> dict[str, str]:
    """The settings that make a worker this member of this fleet."""
    settings: dict[str, object] = {"worker.drain_seconds": LONGEST_DRAIN_SECONDS}
    if spec.queues is not None:
        settings["worker.queues"] = "".join(f"{queue}\n" for queue in spec.queues)
    if spec.capacity is not None:
        settings["worker.capacity"] = spec.capacity
    if spec.cpus is not None:
        settings["worker.executors"] = _executors(spec)
    if spec.memory_mib is not None:
        # The limit of memory is per executor: each gets a share, and one share is left for the agent.
        settings["worker.memory_mib"] = max(1, spec.memory_mib // (_executors(spec) + 1))
    return {MEMBER: name, **{variable(setting): str(value) for setting, value in settings.items()}}


def _executors(spec: LaunchSpec) -> int:
    if spec.cpus is not None:
        return max(1, math.ceil(spec.cpus))
    return int(spec.environment.get(EXECUTORS, "0")) or len(os.sched_getaffinity(0))


NAME_BITS: Final = 48
NAME_END: Final = "-[0-9a-f]{12}"
LONGEST_STEM: Final = 100
"""A name has at most 128 letters."""
GIVE_BACK_AT_ONCE: Final = seconds(0)


class ProcessFleets:
    """Implements FleetBackend. Members do not outlive this process: they drain when it ends, however it ends.

    `launch` starts one; `patience` is how long running jobs may take when the backend is closed.
    """

    def __init__(self, launch: Launch, clock: Clock, rng: random.Random, *, patience: timedelta) -> None:
        self._launch = launch
        self._clock = clock
        self._rng = rng
        self._patience = patience
        self._fleets: dict[str, dict[str, WorkerProcess]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self, spec: LaunchSpec, count: int) -> list[str]:
        if self._closing:
            raise FleetUnavailable("no more workers are started: this process is stopping")
        return [self._start(spec) for _ in range(count)]

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        here = self._fleets.get(fleet, {})
        for name in names:
            if name in here:
                here[name].drain(patience)

    async def members(self, fleet: str) -> list[FleetMember]:
        here = self._fleets.get(fleet, {})
        members = [one.describe() for one in here.values()]
        for member in members:
            if member.condition is Condition.ENDED:
                del here[member.name]
        return sorted(members, key=lambda member: member.name)

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """Recognised by name: a member of this process, or of another one that scales the same fleet."""
        here, made = self._fleets.get(fleet, {}), re.compile(re.escape(_stem(fleet)) + NAME_END)
        return [name for name in workers if name not in here and made.fullmatch(name)]

    async def external_count(self, fleet: str) -> None:
        """None: only autoscalers start and stop its workers."""

    async def stand_by(self) -> None:
        self._drain_all(None)

    def hurry(self) -> None:
        """Give all running jobs back, now; all members end."""
        self._drain_all(GIVE_BACK_AT_ONCE)

    async def close(self) -> None:
        """Drain all members and wait until they have ended."""
        self._closing = True
        self._drain_all(self._patience)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _drain_all(self, patience: timedelta | None) -> None:
        for here in self._fleets.values():
            for one in here.values():
                one.drain(patience)

    def _start(self, spec: LaunchSpec) -> str:
        here = self._fleets.setdefault(spec.fleet, {})
        name = f"{_stem(spec.fleet)}-{self._rng.getrandbits(NAME_BITS):012x}"
        here[name] = process = WorkerProcess(name, self._clock)
        launched = self._launch(spec.app, spec.environment, own_environment(spec, name))
        task = asyncio.ensure_future(process.run(launched))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return name


def _stem(fleet: str) -> str:
    return fleet[:LONGEST_STEM]
