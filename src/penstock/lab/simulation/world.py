"""A fleet on a virtual clock: jobs come due, workers start, run, drain and are paid for by the second."""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from penstock.model.errors import Invalid

Length = Annotated[float, Meta(ge=0)]


class TracedJob(Struct, frozen=True, omit_defaults=True):
    """A line of a trace: due `at` seconds from any origin, runs for `seconds`; `known` that long before it is due."""

    at: float
    seconds: Length
    known: Length = 0.0


class Trace(Struct, frozen=True):
    """Jobs in the order they become due, the first of a file at 0."""

    name: str
    jobs: tuple[TracedJob, ...]

    @property
    def work_seconds(self) -> float:
        return sum(job.seconds for job in self.jobs)

    @property
    def ends(self) -> float:
        """When the last job becomes due."""
        return self.jobs[-1].at


def trace_of(name: str, jobs: Iterable[TracedJob]) -> Trace:
    """A trace, put in order. Invalid when it is empty."""
    ordered = tuple(sorted(jobs, key=lambda job: job.at))
    if not ordered:
        raise Invalid(f"trace {name!r} has no jobs; give at least one line such as {{'at': 0, 'seconds': 1.5}}")
    return Trace(name, ordered)


def read_trace(path: Path) -> Trace:
    """A trace from JSON lines, each with `at` and `seconds`. Invalid names the line that is none."""
    decoder = msgspec.json.Decoder(TracedJob)
    jobs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                jobs.append(decoder.decode(line))
            except msgspec.DecodeError as wrong:
                raise Invalid(f"{path}, line {number}: {wrong}; write it as {{'at': 12.5, 'seconds': 1.5}}") from None
    first = min((job.at for job in jobs), default=0.0)
    return trace_of(path.stem, (TracedJob(job.at - first, job.seconds, job.known) for job in jobs))


INFINITY = float("inf")
SAMPLES = 500
LATELY = 2000
"""How many of the last jobs that ended give the service time."""
PATIENCE_SECONDS = 3600.0
"""How long after the last job a contender may still take to let its workers go."""


class Machines(Struct, frozen=True):
    """What workers are like: seconds from asking for one to its first claim, and jobs each runs at once."""

    startup: float = 10.0
    capacity: int = 1
    max: int = 100


class SimulatedSnapshot(Struct):
    """What can be seen of a fleet at a look. `service` None: no job has ended yet."""

    at: float
    backlog: int
    running: int
    starting: int
    idle: int
    busy: int
    oldest_wait: float
    arrived: int
    due_soon: list[float]
    service: float | None

    @property
    def workers(self) -> int:
        return self.starting + self.idle + self.busy


class ScalerOrder(Struct):
    """Start or stop so many workers, and look again in so many seconds. Idle ones stop first; a busy one drains."""

    start: int = 0
    stop: int = 0
    look_again: float = 1.0


class Scaler(Protocol):
    """Decides how many workers there are. One that never stops workers is charged until the last job is done."""

    name: str
    lets_go: bool

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder: ...


class Sample(Struct, frozen=True):
    """The most jobs that waited and the most workers there were, from the sample before until this one."""

    at: float
    backlog: int
    workers: int


class SimulatedRun(Struct):
    """How it went: the wait of every job in the order they started, and what the workers cost.

    `hindsight_seconds`: what they would have cost with starts just in time, and no gap kept that costs more than one.
    """

    waits: list[float] = []
    worker_seconds: float = 0.0
    hindsight_seconds: float = 0.0
    starts: int = 0
    peak: int = 0
    ended: float = 0.0
    samples: list[Sample] = []


class _SimulatedWorker:
    __slots__ = ("busy_until", "draining", "running", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.running = 0
        self.draining = False
        self.busy_until: float | None = None


_READY, _DONE, _LOOK = 0, 1, 2


class World:
    """One run of a trace under one scaler. Events in order of time; the same input gives the same run."""

    def __init__(self, trace: Trace, machines: Machines, scaler: Scaler) -> None:
        self.trace, self.machines, self.scaler = trace, machines, scaler
        self.now = 0.0
        self.waiting: deque[tuple[float, float]] = deque()
        self.events: list[tuple[float, int, int, _SimulatedWorker | None, float]] = []
        self.count = 0
        self.starting: dict[_SimulatedWorker, None] = {}
        self.idle: dict[_SimulatedWorker, None] = {}
        self.partly: dict[_SimulatedWorker, None] = {}
        self.full: dict[_SimulatedWorker, None] = {}
        self.running = 0
        self.draining = 0
        self.arrived = 0
        self.next_job = 0
        self.lately: deque[float] = deque(maxlen=LATELY)
        self.lately_sum = 0.0
        self.heralds = sorted((job.at - job.known, job.at) for job in trace.jobs if job.known > 0)
        self.next_herald = 0
        self.heralded: list[float] = []
        self.run = SimulatedRun()
        self.sample_every = max(1.0, trace.ends * 1.05 / SAMPLES)
        self.next_sample = 0.0
        self.most_waiting = 0
        self.most_workers = 0

    def play(self) -> SimulatedRun:
        """Run to the end: all jobs done, and the workers gone or given up on."""
        self._push(0.0, _LOOK, None)
        while self.events or self.next_job < len(self.trace.jobs):
            due = self.trace.jobs[self.next_job].at if self.next_job < len(self.trace.jobs) else INFINITY
            if self.events and self.events[0][0] <= due:
                at, _, kind, worker, lasted = heappop(self.events)
                self._pass_to(at)
                self._happen(kind, worker, lasted)
            else:
                self._pass_to(due)
                self._arrive()
            if self._over():
                break
        self._close()
        return self.run

    def _over(self) -> bool:
        if self.next_job < len(self.trace.jobs) or self.waiting or self.running:
            return False
        if self.run.ended == 0.0:
            self.run.ended = self.now
        gone = not (self.starting or self.idle)
        return gone or not self.scaler.lets_go or self.now - self.run.ended > PATIENCE_SECONDS

    def _close(self) -> None:
        for worker in (*self.starting, *self.idle, *self.partly, *self.full):
            self.run.worker_seconds += self.now - worker.since

    def _pass_to(self, at: float) -> None:
        while self.next_sample <= at:
            self.run.samples.append(Sample(self.next_sample, self.most_waiting, self.most_workers))
            self.next_sample += self.sample_every
            self.most_waiting, self.most_workers = len(self.waiting), self.present + self.draining
        self.now = at

    @property
    def present(self) -> int:
        return len(self.starting) + len(self.idle) + len(self.partly) + len(self.full)

    def _arrive(self) -> None:
        job = self.trace.jobs[self.next_job]
        self.next_job += 1
        self.arrived += 1
        if (worker := next(iter(self.partly), None) or next(iter(self.idle), None)) is not None:
            self._begin(worker, job.at, job.seconds)
        else:
            self.waiting.append((job.at, job.seconds))
            self.most_waiting = max(self.most_waiting, len(self.waiting))

    def _happen(self, kind: int, worker: _SimulatedWorker | None, lasted: float) -> None:
        if worker is None:
            self._look()
        elif kind == _READY:
            self._ready(worker)
        else:
            self._done(worker, lasted)

    def _ready(self, worker: _SimulatedWorker) -> None:
        if worker.draining:
            return
        del self.starting[worker]
        self.idle[worker] = None
        self._fill(worker)

    def _done(self, worker: _SimulatedWorker, lasted: float) -> None:
        self.running -= 1
        worker.running -= 1
        self._note(lasted)
        if worker.draining:
            if worker.running == 0:
                self.draining -= 1
                self._bill(worker)
            return
        self.full.pop(worker, None)
        self.partly.pop(worker, None)
        (self.partly if worker.running else self.idle)[worker] = None
        self._fill(worker)

    def _note(self, lasted: float) -> None:
        if len(self.lately) == LATELY:
            self.lately_sum -= self.lately[0]
        self.lately.append(lasted)
        self.lately_sum += lasted

    def _fill(self, worker: _SimulatedWorker) -> None:
        while self.waiting and worker.running < self.machines.capacity:
            self._begin(worker, *self.waiting.popleft())

    def _begin(self, worker: _SimulatedWorker, due: float, lasts: float) -> None:
        self.run.waits.append(self.now - due)
        self._regret(worker, self.now + lasts)
        self.idle.pop(worker, None)
        self.partly.pop(worker, None)
        worker.running += 1
        self.running += 1
        (self.full if worker.running == self.machines.capacity else self.partly)[worker] = None
        self._push(self.now + lasts, _DONE, worker, lasts)

    def _regret(self, worker: _SimulatedWorker, until: float) -> None:
        """Count what hindsight would have paid for a worker up to the end of the job it begins."""
        startup = self.machines.startup
        if worker.busy_until is None:
            self.run.hindsight_seconds += startup + until - self.now
        elif worker.busy_until <= self.now:
            self.run.hindsight_seconds += min(startup, self.now - worker.busy_until) + until - self.now
        else:
            self.run.hindsight_seconds += max(0.0, until - worker.busy_until)
        worker.busy_until = max(worker.busy_until or 0.0, until)

    def _push(self, at: float, kind: int, worker: _SimulatedWorker | None, lasted: float = 0.0) -> None:
        self.count += 1
        heappush(self.events, (at, self.count, kind, worker, lasted))

    def _bill(self, worker: _SimulatedWorker) -> None:
        self.run.worker_seconds += self.now - worker.since

    def _look(self) -> None:
        order = self.scaler.observe(self._snapshot())
        self.arrived = 0
        for _ in range(min(order.start, self.machines.max - self.present)):
            self._start()
        for _ in range(order.stop):
            self._stop()
        self._push(self.now + order.look_again, _LOOK, None)

    def _snapshot(self) -> SimulatedSnapshot:
        return SimulatedSnapshot(
            at=self.now,
            backlog=len(self.waiting),
            running=self.running,
            starting=len(self.starting),
            idle=len(self.idle),
            busy=len(self.partly) + len(self.full),
            oldest_wait=self.now - self.waiting[0][0] if self.waiting else 0.0,
            arrived=self.arrived,
            due_soon=self._due_soon(),
            service=self.lately_sum / len(self.lately) if self.lately else None,
        )

    def _due_soon(self) -> list[float]:
        """When the jobs that are known, and not due yet, will be."""
        while self.next_herald < len(self.heralds) and self.heralds[self.next_herald][0] <= self.now:
            heappush(self.heralded, self.heralds[self.next_herald][1])
            self.next_herald += 1
        while self.heralded and self.heralded[0] <= self.now:
            heappop(self.heralded)
        return self.heralded

    def _start(self) -> None:
        worker = _SimulatedWorker(self.now)
        self.starting[worker] = None
        self.run.starts += 1
        self.run.peak = max(self.run.peak, self.present)
        self.most_workers = max(self.most_workers, self.present + self.draining)
        self._push(self.now + self.machines.startup, _READY, worker)

    def _stop(self) -> None:
        """Let one worker go: an idle one, one that is not up yet, or else a busy one once it has finished."""
        for resting in (self.idle, self.starting):
            if resting:
                worker, _ = resting.popitem()
                worker.draining = True
                self._bill(worker)
                return
        for busy in (self.partly, self.full):
            if busy:
                worker, _ = busy.popitem()
                worker.draining = True
                self.draining += 1
                return
