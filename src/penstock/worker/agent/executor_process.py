"""One executor process as the agent sees it, and the jobs it holds."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.model.job import ErrorCode, JobError
from penstock.model.text import readable
from penstock.worker.agent.attempt import Attempt, Cause
from penstock.worker.channel import Channel
from penstock.worker.prefork.client import PreforkLost, own_prefork, without_prefork
from penstock.worker.processes import Child, ForkedChild, kill_group, when_ended, without_settings
from penstock.worker.protocol import Errored, Interrupt, Leave, Load, Ping, Start, Stop, ToAgent, ToExecutor
from penstock.worker.start_flags import StartFlags, shared_file

logger = logging.getLogger("penstock.worker")


def start_executor(end: int, flags: int, places: int) -> Child:
    """Start an executor with its end of the channel and the start flags; the caller closes its own copies."""
    prefork = own_prefork()
    if prefork is not None:
        try:
            return ForkedChild(prefork.fork_executor(end, flags, places))
        except PreforkLost as error:
            logger.warning("executors are started without a template from now on: %s", error)
            without_prefork()
    return _spawn(end, flags, places)


def _spawn(end: int, flags: int, places: int) -> Child:
    ends = [str(end), str(flags), str(places), str(os.getpid())]
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.worker.executor", *ends],
        env=without_settings(os.environ),
        pass_fds=(end, flags),
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
        start_new_session=True,
    )


DECODER = msgspec.msgpack.Decoder(list[ToAgent])
NEVER = float("inf")


class Phase(StrEnum):
    """The state of an executor. Only one that is loading or ready is given jobs."""

    LOADING = "loading"
    READY = "ready"
    STALLED = "stalled"
    RETIRING = "retiring"
    LEAVING = "leaving"
    ENDED = "ended"


class Watcher(Protocol):
    """Receives the frames of an executor, and its end."""

    def heard(self, executor: "ExecutorProcess", frames: list[ToAgent]) -> None: ...

    def ended(self, executor: "ExecutorProcess", status: int) -> None: ...


class ExecutorProcess:
    """An executor process, started by the constructor. All its frames are received before its end is reported."""

    def __init__(self, load: Load, *, places: int, watcher: Watcher, deadline: float) -> None:
        self.phase = Phase.LOADING
        self.alone = False
        self.attempts: dict[int, Attempt] = {}
        self.given = 0
        self.replaces: ExecutorProcess | None = None
        self.deadline = deadline
        self.asked_at = NEVER
        self.heard_at = 0.0
        self.loading = True
        self.killed = False
        self.cause = Cause.CRASH
        self.cause_text: str | None = None
        self._condemned = False
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._free = list(range(places))
        self._taken: set[int] = set()
        self._process = self._start(places)
        self._channel.open(self._loop)
        self._channel.send([load])
        when_ended(self._process, self._loop, self._exited)

    def _start(self, places: int) -> Child:
        file = shared_file(places)
        ours, theirs = socket.socketpair()
        self._flags = StartFlags(file, places)
        self._channel: Channel[ToAgent, ToExecutor] = Channel(
            ours, DECODER, self._received, ended=lambda: None, garbled=self._garbled, unsendable=self._unsendable
        )
        try:
            return start_executor(theirs.fileno(), file, places)
        finally:
            theirs.close()
            os.close(file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def places(self) -> int:
        """How many more jobs it could hold."""
        return len(self._free)

    # -- jobs

    def give(self, attempts: Sequence[Attempt]) -> None:
        """Give it the attempts; the caller knows that there is room."""
        for attempt in attempts:
            attempt.place = place = self._free.pop()
            attempt.bearer = self
            attempt.begun = True
            self.attempts[place] = attempt
        self.given += len(attempts)
        self._channel.post([_start(attempt) for attempt in attempts])

    def part(self, place: int) -> Attempt | None:
        """Remove a job whose end was reported; None if it had been taken back."""
        self._taken.discard(place)
        self._flags.clear(place)
        self._free.append(place)
        return self.attempts.pop(place, None)

    def has_started(self, attempt: Attempt) -> bool:
        return self._flags.started(attempt.place)

    def take_back(self) -> None:
        """Prevent the start of every job that has not started yet."""
        for place in self.attempts.keys() - self._taken:
            if not self._flags.started(place):
                self._flags.take_back(place)
                self._taken.add(place)

    def taken_back(self) -> list[Attempt]:
        """Attempts that can no longer start here. Valid some time after `take_back`."""
        return [self.attempts.pop(place) for place in tuple(self._taken) if self._is_unstarted(place)]

    def _is_unstarted(self, place: int) -> bool:
        return place in self.attempts and not self._flags.started(place)

    def ask(self, attempt: Attempt) -> None:
        self._channel.post([Stop(attempt.place)])

    def insist(self, attempt: Attempt) -> None:
        self._channel.post([Interrupt(attempt.place)])

    def kill(self, attempt: Attempt) -> None:
        self.end_now()

    # -- the process

    def ping(self, now: float) -> None:
        """Ask for a sign of life; any frame counts as one."""
        self.asked_at = now
        self._channel.post([Ping()])

    def leave(self, deadline: float) -> None:
        """Ask it to exit; it is killed if it has not by then."""
        self.phase, self.deadline = Phase.LEAVING, deadline
        self._channel.post([Leave()])

    def end_now(self, cause: Cause | None = None, text: str | None = None) -> None:
        """Kill it. With a cause its jobs are blamed; without one, jobs that were not asked to stop are not."""
        if self._condemned:
            return
        self._condemned = True
        if cause is None:
            self.killed = True
        else:
            self.cause, self.cause_text = cause, text
        self.phase = Phase.LEAVING
        kill_group(self.pid, signal.SIGKILL)

    def _received(self, frames: list[ToAgent]) -> None:
        self.asked_at = NEVER
        self._watcher.heard(self, frames)

    def _garbled(self, error: Exception) -> None:
        """Treat unreadable data as a crash: the frames after it are lost, the ends of jobs too."""
        self.end_now(Cause.CRASH, f"sent its agent what cannot be read: {readable(error)}")

    def _unsendable(self, frame: ToExecutor, error: Exception) -> None:
        """An error for a job that cannot be encoded; other frames always can."""
        if isinstance(frame, Start):
            told = JobError(
                ErrorCode.RAISED, f"the job cannot be handed to a handler: {readable(error)}", attempt=frame.attempt
            )
            self._watcher.heard(self, [Errored(frame.place, told)])

    def _exited(self, status: int) -> None:
        # From here on its pid may belong to another process.
        self._condemned = True
        self._channel.receive_rest()
        self._channel.close()
        self.phase = Phase.ENDED
        self._watcher.ended(self, status)
        self._flags.close()


def _start(attempt: Attempt) -> Start:
    claim = attempt.claim
    return Start(
        attempt.place, claim.job, claim.type, claim.attempt, claim.fence, bytes(claim.params), attempt.scratch,
        claim.tags, attempt.inputs,
    )  # fmt: skip


MIB = 1024 * 1024
PROC = Path("/proc")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def resident_bytes(pid: int) -> int:
    """The resident memory of the process."""
    try:
        pages = (PROC / str(pid) / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def machine_bytes(limits: tuple[Path, ...] = CGROUP_LIMITS) -> int:
    """The memory of this machine, or of the container that this process is confined to."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *(limit for path in limits if (limit := _number(path)) is not None)])


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # no such control group, or "max"


def limit_bytes(memory_mib: int, executors: int) -> int:
    """The memory limit of one executor: as set, or its share of the machine, with one share left for the rest."""
    return memory_mib * MIB if memory_mib else machine_bytes() // (executors + 1)
