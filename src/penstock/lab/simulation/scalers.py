"""The contenders: our policy, the rules in common use, and one that knows the future."""

from bisect import bisect_right, insort
from collections import deque
from itertools import pairwise
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide
from penstock.lab.simulation.world import SAMPLES, Machines, Sample, ScalerOrder, SimulatedRun, SimulatedSnapshot, Trace
from penstock.model.clock import EPOCH, seconds
from penstock.model.fleet_readings import OBSERVE_SECONDS, DueCount, FleetReading, Unknown
from penstock.model.fleets import Fleet


class Ours:
    """The real policy, asked as often as it wants to be."""

    name = "penstock"
    lets_go = True

    def __init__(self, fleet: Fleet, machines: Machines) -> None:
        self.fleet, self.machines = fleet, machines
        self.memory = Memory()
        self.last = 0.0

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        decision, self.memory = decide(self.fleet, self._reading(snapshot), self.memory)
        self.last = snapshot.at
        return ScalerOrder(decision.start, decision.stop, OBSERVE_SECONDS)

    def _reading(self, snapshot: SimulatedSnapshot) -> FleetReading:
        return FleetReading(
            at=EPOCH + seconds(snapshot.at),
            backlog=snapshot.backlog,
            running=snapshot.running,
            due_soon=tuple(DueCount(at - snapshot.at, 1) for at in snapshot.due_soon),
            oldest_wait_seconds=snapshot.oldest_wait,
            arrival_rate=snapshot.arrived / (snapshot.at - self.last) if snapshot.at > self.last else Unknown(),
            service_seconds=Unknown() if snapshot.service is None else snapshot.service,
            startup_seconds=self.machines.startup,
            capacity=self.machines.capacity,
            starting=snapshot.starting,
            idle=snapshot.idle,
            busy=snapshot.busy,
            draining=0,
        )


class FixedSize:
    """The same number of workers all the time, from the beginning until the last job is done."""

    name = "fixed"
    lets_go = False

    def __init__(self, size: int) -> None:
        self.size = size

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        return ScalerOrder(max(0, self.size - snapshot.workers), 0, 60.0)


class StepAlarms:
    """Two CloudWatch alarms on the depth of the queue, over periods of a minute, and a service that steps by them.

    Above `threshold` for a period: `step` more workers, and `big_step` when it is above ten times that. Empty for
    `empty_periods`: none.
    """

    name = "step alarms"
    lets_go = True
    PERIOD = 60.0

    def __init__(
        self, machines: Machines, *, threshold: int = 10, step: int = 2, big_step: int = 10, empty_periods: int = 3
    ) -> None:
        self.machines = machines
        self.threshold, self.step, self.big_step, self.empty_periods = threshold, step, big_step, empty_periods
        self.empty = 0

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        self.empty = 0 if snapshot.backlog else self.empty + 1
        if self.empty >= self.empty_periods:
            return ScalerOrder(0, snapshot.workers, self.PERIOD)
        # With such alarms a depth at or below the threshold starts nothing; the first worker is granted here.
        if snapshot.backlog > 10 * self.threshold:
            return ScalerOrder(self.big_step, 0, self.PERIOD)
        if snapshot.backlog > self.threshold or (snapshot.backlog and not snapshot.workers):
            return ScalerOrder(self.step, 0, self.PERIOD)
        return ScalerOrder(0, 0, self.PERIOD)


class Keda:
    """KEDA with an HPA, at their defaults: what is queued and in flight, divided by `queue_length` per pod.

    From zero to one at a poll every 30 s; then a look every 15 s, at most twice as many or four more pods in that time,
    nothing changed within a tolerance of a tenth, and down to the highest count asked for in the last 300 s.
    To zero 300 s after the queue was last seen active.
    """

    name = "keda"
    lets_go = True
    POLL, SYNC, COOLDOWN, STABILISE, TOLERANCE = 30.0, 15.0, 300.0, 300.0, 0.1

    def __init__(self, machines: Machines, queue_length: float = 5.0) -> None:
        self.machines, self.queue_length = machines, queue_length
        self.active_at = 0.0
        self.asked: deque[tuple[float, int]] = deque()

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        load = snapshot.backlog + snapshot.running
        if load:
            self.active_at = snapshot.at
        if snapshot.workers == 0:
            self.asked.clear()
            return ScalerOrder(1 if load else 0, 0, self.SYNC if load else self.POLL)
        if not load and snapshot.at - self.active_at >= self.COOLDOWN:
            return ScalerOrder(0, snapshot.workers, self.POLL)
        change = self._stable(snapshot.at, self._desired(load, snapshot.workers)) - snapshot.workers
        change = min(change, max(snapshot.workers, 4))
        return ScalerOrder(max(0, change), max(0, -change), self.SYNC)

    def _desired(self, load: int, workers: int) -> int:
        if abs(load / (self.queue_length * workers) - 1) <= self.TOLERANCE:
            return workers
        return min(self.machines.max, max(1, ceil(load / self.queue_length)))

    def _stable(self, at: float, desired: int) -> int:
        self.asked.append((at, desired))
        while self.asked[0][0] < at - self.STABILISE:
            self.asked.popleft()
        return max(count for _, count in self.asked)


LATE = 0.05
LOOKAHEAD = 50


class HindsightTerms(Struct, frozen=True):
    """A plan: slots must come free within `wait` of a job's being due, and for a few jobs within `latest`.

    A new worker may begin `linger` after its first job is due, where it then runs on into the jobs that follow.
    """

    wait: float
    latest: float
    linger: float


def clairvoyant(trace: Trace, machines: Machines, compared: SimulatedRun, wait: float, latest: float) -> SimulatedRun:
    """A scaler that knows the future: every job and its run time, before it comes. 95 of 100 waits are within `wait`.

    The cheaper of two runs. One is a plan of its own: jobs in the order they become due, each on the slot that comes
    free last but in time, so that slots run without gaps. It keeps an idle worker when that is cheaper than a start-up;
    else it stops the worker, and starts one that is up just in time. In time is within `wait` of being due; one job in
    twenty may be late, up to `latest`, where that saves a start. The other is the run it is compared with, repeated
    with hindsight: every job where and when it ran, but workers start just in time, and stop as soon as nothing comes
    to them within a start-up.

    In its own plan slots are rented singly, a worker being `capacity` of them, and there may be any number: no real
    fleet has these advantages. Its cost can be reached but is not a proven minimum; no scaler costs less than the work.
    """
    plans = (_plan(trace, machines, HindsightTerms(wait, latest, linger)) for linger in (0.0, wait))
    run, begins = min(plans, key=lambda plan: plan[0].worker_seconds)
    if compared.hindsight_seconds < run.worker_seconds:
        return replace(compared, worker_seconds=compared.hindsight_seconds)
    run.waits = [begin - job.at for begin, job in zip(begins, trace.jobs, strict=True)]
    run.samples = _samples(trace, begins, machines)
    return run


def _plan(trace: Trace, machines: Machines, terms: HindsightTerms) -> tuple[SimulatedRun, list[float]]:
    """What a plan costs, and when each job begins. `free` holds when each slot comes free, in order."""
    free: list[float] = []
    begins: list[float] = []
    run = SimulatedRun()
    slot_seconds, late = 0.0, 0
    for number, job in enumerate(trace.jobs):
        slot = bisect_right(free, job.at + terms.wait)
        if not slot and free and free[0] <= job.at + terms.latest and late < LATE * len(begins):
            slot, late = 1, late + 1
        begin, paid = _assign(free, slot, job.at, machines.startup)
        if begin is None:
            run.starts += 1
            begin = _delay_start(trace, number, job.at + terms.linger)
        slot_seconds += paid + job.seconds
        insort(free, begin + job.seconds)
        begins.append(begin)
        run.peak = max(run.peak, -(-len(free) // machines.capacity))
    run.worker_seconds, run.ended = slot_seconds / machines.capacity, free[-1]
    return run, begins


def _assign(free: list[float], slot: int, due: float, startup: float) -> tuple[float | None, float]:
    """When a job begins on the slot before index `slot`, and the cost beside its run; None if one must be started."""
    gap = due - free[slot - 1] if slot else float("inf")
    found = free.pop(slot - 1) if slot else due
    return (None, startup) if gap > startup else (max(due, found), max(0.0, gap))


def _delay_start(trace: Trace, number: int, until: float) -> float:
    """When a new slot begins: later than its first job is due, where it then runs on into the jobs that follow."""
    begin = trace.jobs[number].at
    work = 0.0
    for job, following in pairwise(trace.jobs[number : number + LOOKAHEAD]):
        work += job.seconds
        if following.at - work > until:
            break
        begin = max(begin, following.at - work)
    return begin


def _samples(trace: Trace, begins: list[float], machines: Machines) -> list[Sample]:
    """Jobs waiting and slots in use, over time; gaps that were waited out are not drawn."""
    changes = [(job.at, 1, 0) for job in trace.jobs]
    for begin, job in zip(begins, trace.jobs, strict=True):
        changes += [(begin, -1, 1), (begin + job.seconds, 0, -1)]
    every = max(1.0, trace.ends * 1.05 / SAMPLES)
    samples: list[Sample] = []
    waiting = running = most_waiting = most_running = 0
    for at, more_waiting, more_running in sorted(changes, key=lambda change: change[0]):
        while len(samples) * every <= at:
            samples.append(Sample(len(samples) * every, most_waiting, -(-most_running // machines.capacity)))
            most_waiting, most_running = waiting, running
        waiting, running = waiting + more_waiting, running + more_running
        most_waiting, most_running = max(most_waiting, waiting), max(most_running, running)
    return samples
