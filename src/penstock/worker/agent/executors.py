"""The executors of one worker: starts and replaces them, distributes jobs, and reports how jobs end."""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from penstock.model.clock import Clock
from penstock.model.job import LogLine, Progress
from penstock.worker.agent.attempt import Attempt, Cause, Died, Displaced, End, Ending, Failed, Halted, Returned
from penstock.worker.agent.executor_process import MIB, ExecutorProcess, Phase, resident_bytes
from penstock.worker.agent.outage import LoadRetries
from penstock.worker.processes import describe
from penstock.worker.protocol import (
    Errored,
    Finished,
    Load,
    Loaded,
    LoadFailed,
    Pong,
    Progressed,
    Skipped,
    Stopped,
    ToAgent,
    Wrote,
)


def shares(count: int, held: Sequence[int]) -> list[int]:
    """How many of `count` new jobs each executor gets, given the numbers that they hold: each goes to the least loaded.

    Computed from the fullest down: an executor above the level at which all would be even gets none.
    """
    given = [0] * len(held)
    fullest_first = sorted(range(len(held)), key=held.__getitem__, reverse=True)
    for place, one in enumerate(fullest_first):
        rest = fullest_first[place:]
        level = (sum(held[other] for other in rest) + count) // len(rest)
        given[one] = max(0, level - held[one])
        count -= given[one]
    return given


logger = logging.getLogger("penstock.worker")

LOAD_SECONDS = 60.0
LEAVE_SECONDS = 5.0
QUIET_SECONDS = 0.25
STALL_SECONDS = 0.75


class Plan(Struct, frozen=True):
    """How many executors there are, and their limits. Zero switches a limit off."""

    load: Load
    wanted: int
    places: int
    memory_bytes: int = 0
    recycle_jobs: int = 0
    recycle_bytes: int = 0


class AttemptEvents(Protocol):
    """Receives the events of jobs."""

    def ended(self, ends: Sequence[End]) -> None: ...

    def wrote(self, attempt: Attempt, lines: tuple[LogLine, ...]) -> None: ...

    def progressed(self, attempt: Attempt, progress: Progress) -> None: ...

    def room_changed(self) -> None: ...


class IgnoredEvents:
    """Ignores events: before `report_to` no job has been given."""

    def ended(self, ends: Sequence[End]) -> None: ...

    def wrote(self, attempt: Attempt, lines: tuple[LogLine, ...]) -> None: ...

    def progressed(self, attempt: Attempt, progress: Progress) -> None: ...

    def room_changed(self) -> None: ...


class Executors:
    """Starts executors, replaces those that end, stall or are to be recycled, and picks the one for a job."""

    def __init__(self, plan: Plan, clock: Clock, rng: random.Random) -> None:
        self._plan = plan
        self._jobs: AttemptEvents = IgnoredEvents()
        self._clock = clock
        self._members: list[ExecutorProcess] = []
        self._spare: ExecutorProcess | None = None
        self._keep_spare = False
        self._closing = False
        self._empty = asyncio.Event()
        self.loading = LoadRetries(clock, rng)

    # -- for jobs

    def report_to(self, jobs: AttemptEvents) -> None:
        self._jobs = jobs

    @property
    def ready(self) -> bool:
        """Whether a job given now would start at once."""
        return any(one.phase is Phase.READY and not one.alone for one in self._members)

    @property
    def unsteady(self) -> bool:
        """Whether some executor is starting or ending and must be checked often."""
        return any(one.phase is not Phase.READY for one in self._members)

    def deal(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """Give each attempt to the executor with the fewest jobs; returns those for which none has room.

        Executors that are still loading get only what the ready ones cannot hold.
        """
        for phase in (Phase.READY, Phase.LOADING):
            able = [one for one in self._members if one.phase is phase and not one.alone]
            for executor, share in zip(able, shares(len(attempts), [len(one.attempts) for one in able]), strict=True):
                if taken := attempts[: min(share, executor.places)]:
                    executor.give(taken)
                    attempts = attempts[len(taken) :]
        return attempts

    def alone(self) -> ExecutorProcess:
        """A fresh executor for one job; it ends with the job."""
        executor, self._spare = self._spare or self._start(alone=True), None
        if self._keep_spare:
            self._spare = self._start(alone=True)
        return executor

    def keep_spare(self) -> None:
        """From now on keep one idle executor for the next job that must run alone."""
        self._keep_spare = True
        self._spare = self._start(alone=True)

    # -- keeping them

    def mend(self) -> None:
        """Start missing executors."""
        if self._closing or self.loading.resting:
            return
        while len(self._able()) < self._plan.wanted:
            self._start()

    def look(self) -> None:
        """Check deadlines and stalls, and start missing executors."""
        now = self._clock.monotonic()
        for executor in tuple(self._members):
            match executor.phase:
                case Phase.LOADING | Phase.LEAVING if now >= executor.deadline:
                    executor.end_now()
                case Phase.READY if executor.attempts and not executor.alone:
                    self._look_for_stall(executor, now)
                case Phase.STALLED:
                    self._give_back(executor)
        self.mend()

    def look_at_memory(self) -> None:
        """Kill executors over the memory limit; recycle those that have grown."""
        for executor in tuple(self._members):
            if executor.phase in (Phase.LEAVING, Phase.ENDED):
                continue
            used = resident_bytes(executor.pid)
            if 0 < self._plan.memory_bytes < used:
                self._end_for_memory(executor, used)
            elif 0 < self._plan.recycle_bytes < used:
                self._recycle(executor)

    async def close(self) -> None:
        """Kill all executors and wait for their end."""
        self._closing = True
        for executor in tuple(self._members):
            executor.end_now()
        if self._members:
            await asyncio.wait_for(self._empty.wait(), LEAVE_SECONDS)

    def _able(self) -> list[ExecutorProcess]:
        """Executors that count as capacity; a successor only once its predecessor no longer does."""
        return [
            one
            for one in self._members
            if one.phase in (Phase.LOADING, Phase.READY) and not one.alone and one.replaces is None
        ]

    def _start(self, *, alone: bool = False, replaces: ExecutorProcess | None = None) -> ExecutorProcess:
        executor = ExecutorProcess(
            self._plan.load,
            places=1 if alone else self._plan.places,
            watcher=self,
            deadline=self._clock.monotonic() + LOAD_SECONDS,
        )
        executor.alone, executor.replaces = alone, replaces
        self._members.append(executor)
        return executor

    # -- stalls, memory, age

    def _look_for_stall(self, executor: ExecutorProcess, now: float) -> None:
        if now >= executor.asked_at + STALL_SECONDS:
            logger.warning("executor %d is blocked by a handler; another takes its place meanwhile", executor.pid)
            executor.phase = Phase.STALLED
            executor.take_back()
        elif now >= executor.heard_at + QUIET_SECONDS and executor.asked_at > now:
            executor.ping(now)

    def _give_back(self, executor: ExecutorProcess) -> None:
        if taken := executor.taken_back():
            self._jobs.ended([(attempt, Halted()) for attempt in taken])

    def _end_for_memory(self, executor: ExecutorProcess, used: int) -> None:
        text = f"used {used // MIB} MiB of memory, more than the {self._plan.memory_bytes // MIB} MiB it may"
        executor.end_now(Cause.MEMORY, text)

    def _recycle(self, executor: ExecutorProcess) -> None:
        """Start a successor, which takes over once it is ready."""
        succeeded = any(one.replaces is executor for one in self._members)
        if executor.phase is Phase.READY and not executor.alone and not succeeded and not self.loading.failing:
            self._start(replaces=executor)

    def _retire(self, executor: ExecutorProcess) -> None:
        executor.phase = Phase.RETIRING
        self._leave_if_idle(executor)

    def _leave_if_idle(self, executor: ExecutorProcess) -> None:
        done = executor.phase is Phase.RETIRING or (executor.alone and executor.given)
        if done and not executor.attempts and executor.phase is not Phase.LEAVING:
            executor.leave(self._clock.monotonic() + LEAVE_SECONDS)

    # -- frames of executors

    def heard(self, executor: ExecutorProcess, frames: list[ToAgent]) -> None:
        executor.heard_at = self._clock.monotonic()
        ends: list[End] = []
        for frame in frames:
            # The most frequent frame first.
            if type(frame) is not Finished:
                self._hear(executor, frame)
            elif (attempt := executor.part(frame.place)) is not None:
                ends.append((attempt, Returned(frame.result, frame.outputs)))
        if ends:
            self._jobs.ended(ends)
        if executor.phase is Phase.STALLED:
            self._awake(executor)
        if 0 < self._plan.recycle_jobs <= executor.given:
            self._recycle(executor)
        self._leave_if_idle(executor)

    def _hear(self, executor: ExecutorProcess, frame: ToAgent) -> None:
        match frame:
            case Finished(place, result, outputs):
                self._part(executor, place, Returned(result, outputs))
            case Errored(place, error):
                self._part(executor, place, Failed(error))
            case Stopped(place) | Skipped(place):
                self._part(executor, place, Halted())
            case Wrote(place, lines) if place in executor.attempts:
                self._jobs.wrote(executor.attempts[place], lines)
            case Progressed(place, progress) if place in executor.attempts:
                self._jobs.progressed(executor.attempts[place], progress)
            case Loaded():
                self._is_loaded(executor, frame)
            case LoadFailed(message, traceback):
                self.loading.failed(f"{self._plan.load.app} cannot be imported: {message}\n{traceback}".rstrip())
            case Pong() | Wrote() | Progressed():
                pass

    def _part(self, executor: ExecutorProcess, place: int, ending: Ending) -> None:
        attempt = executor.part(place)
        if attempt is not None:
            self._jobs.ended([(attempt, ending)])

    def _is_loaded(self, executor: ExecutorProcess, loaded: Loaded) -> None:
        executor.phase, executor.loading = Phase.READY, False
        self.loading.succeeded(loaded)
        old, executor.replaces = executor.replaces, None
        if old is not None and old.phase is Phase.READY:
            self._retire(old)
        self._jobs.room_changed()

    def _awake(self, executor: ExecutorProcess) -> None:
        """A stalled executor responds again: it is ready unless it was replaced; else it leaves after its jobs."""
        self._give_back(executor)
        executor.phase = Phase.READY
        if len(self._able()) > self._plan.wanted:
            self._retire(executor)

    # -- their end

    def ended(self, executor: ExecutorProcess, status: int) -> None:
        self._members.remove(executor)
        if executor is self._spare:
            self._spare = None
        if (
            executor.loading
            and not self._closing
            and not (executor.killed and self._clock.monotonic() < executor.deadline)
        ):
            self.loading.failed(f"{self._plan.load.app}: the process that imports it {describe(status)}")
        self._end_jobs(executor, status)
        self.mend()
        if not self._members:
            self._empty.set()

    def _end_jobs(self, executor: ExecutorProcess, status: int) -> None:
        """End the jobs of a dead executor. Unstarted ones are released, and all if it was killed because of one."""
        attempts = list(executor.attempts.values())
        started = {one for one in attempts if executor.has_started(one)}
        death = Died(executor.cause, executor.cause_text or describe(status), len(started))
        if started and not executor.killed:
            logger.warning("executor %d %s with %s", executor.pid, death.how, ", ".join(map(str, started)))
        end = Displaced() if executor.killed else death
        self._jobs.ended([(attempt, end if attempt in started else Halted()) for attempt in attempts])
