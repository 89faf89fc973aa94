"""What an autoscaler measures of a fleet. A measurement that could not be made is Unknown, never 0."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.declarations import unfit_type
from penstock.model.fleets import Fleet
from penstock.model.workers import Worker, deployed_at

OBSERVE_SECONDS = 1.0
"""How often a fleet is observed. One observation reads the store once; it comes sooner when a job arrives."""
LEAST_START_COST_SECONDS = 5.0
"""A start costs at least as much as this time of an idle worker, however fast it is: else fleets would flap."""
ASSUMED_STARTUP_SECONDS = 10.0
"""The start-up time until a worker of the fleet was seen to start."""


class Unknown(Struct, frozen=True):
    """The result of a measurement that could not be made. `unknown` is the reason, as text."""

    unknown: str = "not observed"


Reading: TypeAlias = float | Unknown
"""An amount that may be Unknown."""
Tally: TypeAlias = int | Unknown
"""A count that may be Unknown."""

T = TypeVar("T")


def known(reading: T | Unknown) -> TypeGuard[T]:
    return not isinstance(reading, Unknown)


class DueCount(Struct, frozen=True):
    """`jobs` jobs become due in `in_seconds`."""

    in_seconds: float
    jobs: int


class FleetReading(Struct, frozen=True, kw_only=True):
    """One observation of a fleet and its queues. What is not given is Unknown.

    `backlog`: jobs that are due and do not run yet; `running`: jobs that run; `due_soon`: those due later, by when.
    `arrival_rate`: jobs that became due per second since the one before. `service_seconds`: how long jobs have run
    lately, on average. `startup_seconds`: from asking for a worker to its first claim. `capacity`: jobs a worker runs
    at once. Each worker is in one state: `starting`, `idle` (ready, and runs nothing), `busy`, `draining` or `lost`.
    """

    at: Instant
    backlog: Tally = Unknown()
    running: Tally = Unknown()
    due_soon: tuple[DueCount, ...] | Unknown = Unknown()
    oldest_wait_seconds: Reading = Unknown()
    arrival_rate: Reading = Unknown()
    service_seconds: Reading = Unknown()
    startup_seconds: Reading = Unknown()
    capacity: Tally = Unknown()
    starting: Tally = Unknown()
    idle: Tally = Unknown()
    busy: Tally = Unknown()
    draining: Tally = Unknown()
    lost: Tally = Unknown()

    @property
    def present(self) -> int | None:
        """Workers that run jobs, or will: starting, idle and busy; None if not all of them are known."""
        counts = (self.starting, self.idle, self.busy)
        return sum(count for count in counts if known(count)) if all(map(known, counts)) else None


class Runs(Struct, frozen=True):
    """The types that a fleet's workers had when they were last seen, and when the newest of their code was deployed.

    `unfit` are the type names of waiting jobs whose parameters did not fit the handler.
    """

    types: tuple[str, ...]
    deployed_at: Instant
    unfit: tuple[str, ...] = ()

    def lacks(self, called: str, names: Iterable[str], declared_at: datetime | None) -> bool:
        """Whether more workers would not help jobs of the type name `called`, whose handlers have one of `names`.

        They would lack the type, or refuse the job. A type declared by newer code is not lacking: the next worker may
        run that code.
        """
        older = declared_at is None or declared_at <= self.deployed_at
        return older and (called in self.unfit or not any(name in self.types for name in names))


def runs_of(workers: Iterable[Worker]) -> Runs | None:
    """What these workers run; None if there are none."""
    seen = [worker for worker in workers if worker.seen_at is not None]
    if not seen:
        return None
    types = {name for worker in seen for name in worker.types}
    signatures = {name: {worker.signatures.get(name) for worker in seen if name in worker.types} for name in types}
    unfit = [unfit_type(name, one) for name, (one, *others) in signatures.items() if one is not None and not others]
    newest = max(at for worker in seen if (at := deployed_at(worker)) is not None)
    return Runs(tuple(sorted(types)), newest, tuple(sorted(unfit)))


class CompleteReading(Struct, frozen=True, kw_only=True):
    """A reading in which everything that a decision needs is known; times are in seconds.

    `service` None: no job was seen to end. `sees_ahead`: jobs that are due later could be counted.
    """

    at: datetime
    backlog: int
    running: int
    starting: int
    idle: int
    busy: int
    capacity: int
    startup: float
    service: float | None
    arrival_rate: float | None
    due_soon: tuple[DueCount, ...]
    sees_ahead: bool

    @property
    def present(self) -> int:
        """Workers that run jobs, or will: starting, idle and busy."""
        return self.starting + self.idle + self.busy

    @property
    def start_cost(self) -> float:
        """The longest time for which keeping an idle worker is cheaper than starting it again, in seconds."""
        return max(self.startup, LEAST_START_COST_SECONDS)

    def due_within(self, span: float) -> int:
        """Jobs that are not due yet but will be within so many seconds."""
        return sum(due.jobs for due in self.due_soon if due.in_seconds <= span)


def complete(fleet: Fleet, reading: FleetReading) -> CompleteReading | str:
    """The reading with assumptions for what a decision can do without; else, as text, what is missing and why."""
    needed = {"backlog": reading.backlog, "starting": reading.starting, "idle": reading.idle, "busy": reading.busy}
    gaps = [f"{name} ({value.unknown})" for name, value in needed.items() if isinstance(value, Unknown)]
    if gaps:
        return ", ".join(gaps)
    backlog, starting, idle, busy = (_count(value) for value in needed.values())
    capacity = fleet.capacity or max(1, _count(reading.capacity, 1))
    return CompleteReading(
        at=reading.at,
        backlog=backlog,
        running=_count(reading.running, busy * capacity),
        starting=starting,
        idle=idle,
        busy=busy,
        capacity=capacity,
        startup=ASSUMED_STARTUP_SECONDS if (startup := _amount(reading.startup_seconds)) is None else startup,
        service=_amount(reading.service_seconds),
        arrival_rate=_amount(reading.arrival_rate),
        due_soon=reading.due_soon if known(reading.due_soon) else (),
        sees_ahead=known(reading.due_soon),
    )


def _count(value: Tally, otherwise: int = 0) -> int:
    return value if known(value) else otherwise


def _amount(value: Reading) -> float | None:
    return value if known(value) else None
