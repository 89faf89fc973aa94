"""The contenders that do not know the future: ours, and the rules people use today."""

from collections import deque
from math import ceil

from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide
from penstock.lab.simulation.world import Machines, ScalerOrder, SimulatedSnapshot
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

    def look(self, sight: SimulatedSnapshot) -> ScalerOrder:
        decision, self.memory = decide(self.fleet, self._reading(sight), self.memory)
        self.last = sight.at
        return ScalerOrder(decision.start, decision.stop, OBSERVE_SECONDS)

    def _reading(self, sight: SimulatedSnapshot) -> FleetReading:
        return FleetReading(
            at=EPOCH + seconds(sight.at),
            backlog=sight.backlog,
            running=sight.running,
            due_soon=tuple(DueCount(at - sight.at, 1) for at in sight.due_soon),
            oldest_wait_seconds=sight.oldest_wait,
            arrival_rate=sight.arrived / (sight.at - self.last) if sight.at > self.last else Unknown(),
            service_seconds=Unknown() if sight.service is None else sight.service,
            startup_seconds=self.machines.startup,
            capacity=self.machines.capacity,
            starting=sight.starting,
            idle=sight.idle,
            busy=sight.busy,
            draining=0,
        )


class FixedSize:
    """The same number of workers all the time, from the beginning until the last job is done."""

    name = "fixed"
    lets_go = False

    def __init__(self, size: int) -> None:
        self.size = size

    def look(self, sight: SimulatedSnapshot) -> ScalerOrder:
        return ScalerOrder(max(0, self.size - sight.workers), 0, 60.0)


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

    def look(self, sight: SimulatedSnapshot) -> ScalerOrder:
        self.empty = 0 if sight.backlog else self.empty + 1
        if self.empty >= self.empty_periods:
            return ScalerOrder(0, sight.workers, self.PERIOD)
        # A depth at or below the threshold starts nothing in the seed's set-up; the first worker is a kindness.
        if sight.backlog > 10 * self.threshold:
            return ScalerOrder(self.big_step, 0, self.PERIOD)
        if sight.backlog > self.threshold or (sight.backlog and not sight.workers):
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

    def look(self, sight: SimulatedSnapshot) -> ScalerOrder:
        load = sight.backlog + sight.running
        if load:
            self.active_at = sight.at
        if sight.workers == 0:
            self.asked.clear()
            return ScalerOrder(1 if load else 0, 0, self.SYNC if load else self.POLL)
        if not load and sight.at - self.active_at >= self.COOLDOWN:
            return ScalerOrder(0, sight.workers, self.POLL)
        change = self._stable(sight.at, self._desired(load, sight.workers)) - sight.workers
        change = min(change, max(sight.workers, 4))
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
