"""What an autoscaler sees of a fleet, and what it decides. A measurement that could not be made is Unknown, never 0."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias, TypeGuard, TypeVar

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.declarations import unfit_type
from penstock.model.workers import Worker, deployed_at


class Unknown(Struct, frozen=True):
    """The third answer of a measurement: it could not be made. `unknown` says why, in words."""

    unknown: str = "not observed"


Reading: TypeAlias = float | Unknown
"""An amount that may be Unknown."""
Tally: TypeAlias = int | Unknown
"""A count that may be Unknown."""

T = TypeVar("T")


def known(reading: T | Unknown) -> TypeGuard[T]:
    return not isinstance(reading, Unknown)


class DueCount(Struct, frozen=True):
    """Jobs that are not due yet: so many, in so many seconds."""

    in_seconds: float
    jobs: int


class FleetReading(Struct, frozen=True, kw_only=True):
    """One look at a fleet and its queues. Whatever is not told is Unknown.

    `backlog`: jobs that are due and do not run yet; `running`: jobs that run; `due_soon`: those due later, by when.
    `arrival_rate`: jobs that became due per second since the last look. `service_seconds`: how long jobs have run
    lately, on average. `startup_seconds`: from asking for a worker to its first claim. `capacity`: jobs a worker runs
    at once. Workers are in one state each: `starting`, `idle` (ready, and runs nothing), `busy`, `draining`.
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


class Runs(Struct, frozen=True):
    """The types that a fleet's workers had when they were last seen, and when the newest of their code was deployed.

    `unfit` are the names under which jobs wait that did not fit their handlers.
    """

    types: tuple[str, ...]
    deployed_at: Instant
    unfit: tuple[str, ...] = ()

    def lacks(self, called: str, names: Iterable[str], declared_at: datetime | None) -> bool:
        """Whether starting workers helps no job that is `called` so, of a type that goes by these names.

        They would not have the type, or not take the job. What newer code has declared, the next one may have.
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


class ScalingDecision(Struct, frozen=True, kw_only=True):
    """What to do now: start `start` workers, or stop `stop` of the idle ones; `desired` is the count that is aimed at.

    `reason` is for people. Look again after `look_again_seconds`, or sooner when something happens.
    """

    desired: int
    start: int = 0
    stop: int = 0
    reason: str
    look_again_seconds: float
