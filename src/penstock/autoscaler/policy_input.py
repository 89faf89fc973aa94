"""A reading in which everything a decision cannot do without is known."""

from datetime import datetime

from msgspec import Struct

from penstock.model.fleet_readings import DueCount, FleetReading, Reading, Unknown, known
from penstock.model.fleets import Fleet

LOOK_SECONDS = 1.0
"""How often to look. A look is one read of the store; a loop may look sooner when something happens."""
LEAST_START_COST_SECONDS = 5.0
"""A start costs at least as much as this time of an idle worker, however fast it is: nobody wants the churn."""
ASSUMED_STARTUP_SECONDS = 10.0
"""Taken until a worker of the fleet has been seen to start."""


class View(Struct, frozen=True, kw_only=True):
    """A reading without gaps. `service` None: no job was seen to end. `sees_ahead`: later jobs could be counted."""

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
        """How long an idle worker may be kept before starting it again had been cheaper, in seconds."""
        return max(self.startup, LEAST_START_COST_SECONDS)

    def due_within(self, span: float) -> int:
        """Jobs that are not due yet but will be."""
        return sum(due.jobs for due in self.due_soon if due.in_seconds <= span)


def view_of(fleet: Fleet, reading: FleetReading) -> View | str:
    """The reading as a view; or, in words, what is Unknown that no decision can do without."""
    needed = {"backlog": reading.backlog, "starting": reading.starting, "idle": reading.idle, "busy": reading.busy}
    gaps = [f"{name} ({value.unknown})" for name, value in needed.items() if isinstance(value, Unknown)]
    if gaps:
        return ", ".join(gaps)
    backlog, starting, idle, busy = (_count(value) for value in needed.values())
    capacity = fleet.capacity or max(1, _count(reading.capacity, 1))
    return View(
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


def _count(value: int | Unknown, otherwise: int = 0) -> int:
    return value if known(value) else otherwise


def _amount(value: Reading) -> float | None:
    return value if known(value) else None


class Want(Struct, frozen=True):
    """So many workers, for a reason. Idle ones beyond that are kept for a while; the last one for one of its own."""

    workers: int
    reason: str
    keep_seconds: float = 0.0
    keep_last_seconds: float = 0.0
