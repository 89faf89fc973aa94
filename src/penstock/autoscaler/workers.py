"""The workers of a fleet: what the backend lists joined with what the registry holds. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.config import variable
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.workers import Worker, WorkerState


class WorkerStatus(StrEnum):
    """What a worker of a fleet is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    LOST = "lost"


AT_WORK = frozenset({WorkerStatus.STARTING, WorkerStatus.IDLE, WorkerStatus.BUSY})
"""The workers that take jobs, or will."""


class FleetWorker(Struct, frozen=True, kw_only=True):
    """One worker of a fleet. `row` is its entry in the registry; None before it has joined.

    `elsewhere`: it belongs to another autoscaler's backend, which alone can stop it.
    """

    name: str
    status: WorkerStatus
    started_at: datetime
    row: Worker | None = None
    elsewhere: bool = False


class FleetWorkers(Struct, frozen=True):
    """All workers of a fleet. `late` are those that run nothing and should have joined, or reported, long ago."""

    workers: tuple[FleetWorker, ...] = ()
    ended: tuple[FleetMember, ...] = ()
    late: tuple[str, ...] = ()

    def count(self, status: WorkerStatus) -> int:
        return sum(worker.status is status for worker in self.workers)

    def in_status(self, status: WorkerStatus) -> list[FleetWorker]:
        return [worker for worker in self.workers if worker.status is status]


class Knowledge(Struct, frozen=True, kw_only=True):
    """What is known of workers besides the backend's list.

    `rows`: the registry, in which silent workers are marked as lost. `held`: running jobs by worker. `ordered`: workers
    that were started and are not listed yet, by the time of the start. `asked`: workers that were asked to stop.
    `joined`: when each worker last had a row. `elsewhere`: members of another autoscaler's backend.
    """

    rows: Mapping[str, Worker]
    joined: Mapping[str, datetime] = {}
    held: Mapping[str, int] = {}
    ordered: Mapping[str, datetime] = {}
    asked: Collection[str] = frozenset()
    elsewhere: Collection[str] = frozenset()


def fleet_workers_of(
    members: Sequence[FleetMember], known: Knowledge, now: datetime, patience: timedelta
) -> FleetWorkers:
    """The workers of a fleet. One that has not joined, or has been silent, for longer than `patience` is late."""
    listed = {member.name for member in members}
    unlisted = [
        FleetWorker(name=name, status=WorkerStatus.STARTING, started_at=at)
        for name, at in known.ordered.items()
        if name not in listed
    ]
    present = [_worker(member, known) for member in members if member.condition is not Condition.ENDED]
    return FleetWorkers(
        workers=tuple(sorted((*present, *unlisted, *_elsewhere(known)), key=lambda worker: worker.name)),
        ended=tuple(member for member in members if member.condition is Condition.ENDED),
        late=tuple(worker.name for worker in present if _is_late(worker, known, now, patience)),
    )


def longest_idle(fleet_workers: FleetWorkers, idle_since: Mapping[str, datetime], count: int) -> list[str]:
    """The names of up to `count` idle workers that this backend can stop, the longest idle first."""
    here = [worker for worker in fleet_workers.in_status(WorkerStatus.IDLE) if not worker.elsewhere]
    idle = sorted(here, key=lambda worker: (idle_since.get(worker.name, worker.started_at), worker.name))
    return [worker.name for worker in idle[:count]]


def _elsewhere(known: Knowledge) -> list[FleetWorker]:
    """Workers of other backends that report and take jobs: they count, so that all backends together keep to max."""
    rows = [known.rows[name] for name in known.elsewhere]
    return [
        FleetWorker(
            name=row.id,
            status=WorkerStatus.BUSY if known.held.get(row.id) else WorkerStatus.IDLE,
            started_at=row.started_at,
            row=row,
            elsewhere=True,
        )
        for row in rows
        if row.state is WorkerState.READY
    ]


def _worker(member: FleetMember, known: Knowledge) -> FleetWorker:
    row = known.rows.get(member.name)
    return FleetWorker(name=member.name, status=_status(member, row, known), started_at=member.started_at, row=row)


def _status(member: FleetMember, row: Worker | None, known: Knowledge) -> WorkerStatus:
    if member.condition is Condition.ENDING or member.name in known.asked:
        return WorkerStatus.DRAINING
    if row is None:
        return WorkerStatus.BUSY if known.held.get(member.name) else WorkerStatus.STARTING
    match row.state:
        case WorkerState.DRAINING:
            return WorkerStatus.DRAINING
        case WorkerState.LOST:
            return WorkerStatus.LOST
        case WorkerState.READY:
            return WorkerStatus.BUSY if known.held.get(member.name) else WorkerStatus.IDLE


def _is_late(worker: FleetWorker, known: Knowledge, now: datetime, patience: timedelta) -> bool:
    if worker.status not in {WorkerStatus.STARTING, WorkerStatus.LOST} or known.held.get(worker.name):
        return False
    joined_at = known.joined.get(worker.name, worker.started_at)
    heard_at = joined_at if worker.row is None else worker.row.seen_at or joined_at
    return now - heard_at > patience


FIRST = timedelta(seconds=1)
LONGEST = timedelta(minutes=1)
STEADY = timedelta(seconds=30)
"""A worker that lived this long started well."""


class StartBackoff(Struct, frozen=True):
    """How many starts in a row have failed, when the next one may be tried, and why the last one failed."""

    failures: int = 0
    failed_at: datetime | None = None
    until: datetime | None = None
    why: str = ""

    @property
    def delay(self) -> timedelta:
        return min(LONGEST, FIRST * (1 << min(max(0, self.failures - 1), 16)))

    def failed(self, now: datetime, why: str) -> "StartBackoff":
        """The backoff after another failure; several failures of one observation count once."""
        worse = StartBackoff(self.failures + 1)
        return StartBackoff(worse.failures, now, now + worse.delay, why)

    def rested(self, now: datetime) -> "StartBackoff":
        """Forget the failures once no start has failed for long enough."""
        over = self.failed_at is not None and now - self.failed_at > 2 * self.delay + STEADY
        return StartBackoff() if over else self

    def allows(self, wanted: int, now: datetime, *, any_well: bool) -> int:
        """How many of the wanted starts may be tried now: none for a while, then one until a worker is well."""
        if self.until is not None and now < self.until:
            return 0
        return wanted if any_well or not self.failures else min(1, wanted)

    def describe(self, now: datetime) -> str | None:
        """The failures as text; None without any."""
        if not self.failures or self.until is None:
            return None
        wait = max(0.0, (self.until - now).total_seconds())
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"starting failed {times} ({self.why}); next try {'now' if wait == 0 else f'in {wait:.0f} s'}"


def failed_starts(
    ended: Sequence[FleetMember], joined: frozenset[str], asked: frozenset[str], now: datetime
) -> str | None:
    """Why starts count as failed, if any do: a worker ended unasked before joining, or with an error soon after."""
    for member in ended:
        if member.name in asked:
            continue
        young = now - member.started_at < STEADY
        if member.name not in joined or (young and member.exit_status != 0):
            return _describe_end(member, joined=member.name in joined)
    return None


def _describe_end(member: FleetMember, *, joined: bool) -> str:
    status = "" if member.exit_status is None else f" with status {member.exit_status}"
    when = "soon after it had joined" if joined else "before it had joined"
    return f"{member.name} ended{status} {when}" + (f": {member.detail}" if member.detail else "")


EXCEPT_QUEUES = variable("worker.except_queues")


def launch_spec_of(effective: EffectiveFleet, app: str, environment: Mapping[str, str]) -> LaunchSpec:
    """What a fleet's workers are started as. The default fleet is told to leave out the queues of other fleets."""
    fleet = effective.fleet
    others = {EXCEPT_QUEUES: "".join(f"{queue}\n" for queue in effective.except_queues)}
    return LaunchSpec(
        fleet=effective.name,
        app=app,
        queues=effective.queues,
        capacity=fleet.capacity,
        image=fleet.image,
        command=fleet.command,
        environment={**environment, **fleet.environment, **(others if effective.except_queues else {})},
        cpus=fleet.cpus,
        memory_mib=fleet.memory_mib,
    )
