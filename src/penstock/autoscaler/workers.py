"""The crew of a fleet: what the backend lists and what the registry knows, as one. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.config import variable
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.workers import Worker, WorkerState


class WorkerStatus(StrEnum):
    """What a worker of a fleet is at."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    LOST = "lost"


AT_WORK = frozenset({WorkerStatus.STARTING, WorkerStatus.IDLE, WorkerStatus.BUSY})
"""Those who take jobs, or will."""


class FleetWorker(Struct, frozen=True, kw_only=True):
    """One worker of the crew. `row` is what it said itself; None before it has joined.

    `elsewhere`: another autoscaler's backend keeps it, which alone can stop it.
    """

    name: str
    post: WorkerStatus
    started_at: datetime
    row: Worker | None = None
    elsewhere: bool = False


class FleetWorkers(Struct, frozen=True):
    """Everybody. `late` are those that should have joined, or been heard from, long ago, and run nothing."""

    hands: tuple[FleetWorker, ...] = ()
    ended: tuple[FleetMember, ...] = ()
    late: tuple[str, ...] = ()

    def count(self, post: WorkerStatus) -> int:
        return sum(hand.post is post for hand in self.hands)

    def at(self, post: WorkerStatus) -> list[FleetWorker]:
        return [hand for hand in self.hands if hand.post is post]


class Knowledge(Struct, frozen=True, kw_only=True):
    """What is known of workers besides the backend's list.

    `rows`: the registry, silent ones marked as lost. `held`: running jobs by worker. `ordered`: started and not listed
    yet, with the time. `asked`: to stop. `joined`: those that had a row, with the time when they last did. `elsewhere`:
    members that another autoscaler's backend keeps.
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
    """Who there is. Whoever has not joined, or is silent, for longer than `patience` is late."""
    listed = {member.name for member in members}
    coming = [
        FleetWorker(name=name, post=WorkerStatus.STARTING, started_at=at)
        for name, at in known.ordered.items()
        if name not in listed
    ]
    there = [_hand(member, known) for member in members if member.condition is not Condition.ENDED]
    return FleetWorkers(
        hands=tuple(sorted((*there, *coming, *_elsewhere(known)), key=lambda hand: hand.name)),
        ended=tuple(member for member in members if member.condition is Condition.ENDED),
        late=tuple(hand.name for hand in there if _is_late(hand, known, now, patience)),
    )


def longest_idle(crew: FleetWorkers, idle_since: Mapping[str, datetime], count: int) -> list[str]:
    """The names of so many idle ones that can be stopped here, those first that have been idle for longest."""
    here = [hand for hand in crew.at(WorkerStatus.IDLE) if not hand.elsewhere]
    idle = sorted(here, key=lambda hand: (idle_since.get(hand.name, hand.started_at), hand.name))
    return [hand.name for hand in idle[:count]]


def _elsewhere(known: Knowledge) -> list[FleetWorker]:
    """Those that are heard from and take jobs: they count, so that two backends never hold more than one may."""
    rows = [known.rows[name] for name in known.elsewhere]
    return [
        FleetWorker(
            name=row.id,
            post=WorkerStatus.BUSY if known.held.get(row.id) else WorkerStatus.IDLE,
            started_at=row.started_at,
            row=row,
            elsewhere=True,
        )
        for row in rows
        if row.state is WorkerState.READY
    ]


def _hand(member: FleetMember, known: Knowledge) -> FleetWorker:
    row = known.rows.get(member.name)
    return FleetWorker(name=member.name, post=_post(member, row, known), started_at=member.started_at, row=row)


def _post(member: FleetMember, row: Worker | None, known: Knowledge) -> WorkerStatus:
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


def _is_late(hand: FleetWorker, known: Knowledge, now: datetime, patience: timedelta) -> bool:
    if hand.post not in {WorkerStatus.STARTING, WorkerStatus.LOST} or known.held.get(hand.name):
        return False
    joined_at = known.joined.get(hand.name, hand.started_at)
    heard_at = joined_at if hand.row is None else hand.row.seen_at or joined_at
    return now - heard_at > patience


FIRST = timedelta(seconds=1)
LONGEST = timedelta(minutes=1)
STEADY = timedelta(seconds=30)
"""A worker that lived this long was well."""


class StartBackoff(Struct, frozen=True):
    """How often in a row starts have failed, until when no other is tried, and why."""

    failures: int = 0
    failed_at: datetime | None = None
    until: datetime | None = None
    why: str = ""

    @property
    def delay(self) -> timedelta:
        return min(LONGEST, FIRST * (1 << min(max(0, self.failures - 1), 16)))

    def failed(self, now: datetime, why: str) -> "StartBackoff":
        """Once more, however many of one look have."""
        worse = StartBackoff(self.failures + 1)
        return StartBackoff(worse.failures, now, now + worse.delay, why)

    def rested(self, now: datetime) -> "StartBackoff":
        """Forget it once nothing has failed for long enough."""
        over = self.failed_at is not None and now - self.failed_at > 2 * self.delay + STEADY
        return StartBackoff() if over else self

    def allows(self, wanted: int, now: datetime, *, anybody_well: bool) -> int:
        """How many of the wanted starts may be tried now: none for a while, then one until somebody is well."""
        if self.until is not None and now < self.until:
            return 0
        return wanted if anybody_well or not self.failures else min(1, wanted)

    def told(self, now: datetime) -> str | None:
        """In words, while it lasts."""
        if not self.failures or self.until is None:
            return None
        wait = max(0.0, (self.until - now).total_seconds())
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"starting failed {times} ({self.why}); next try {'now' if wait == 0 else f'in {wait:.0f} s'}"


def failed_starts(
    ended: Sequence[FleetMember], joined: frozenset[str], asked: frozenset[str], now: datetime
) -> str | None:
    """Why starts are taken to have failed, if any have: ended unasked before joining, or badly soon after."""
    for member in ended:
        if member.name in asked:
            continue
        young = now - member.started_at < STEADY
        if member.name not in joined or (young and member.exit_status != 0):
            return _words(member, joined=member.name in joined)
    return None


def _words(member: FleetMember, *, joined: bool) -> str:
    status = "" if member.exit_status is None else f" with status {member.exit_status}"
    when = "soon after it had joined" if joined else "before it had joined"
    return f"{member.name} ended{status} {when}" + (f": {member.detail}" if member.detail else "")


EXCEPT_QUEUES = variable("worker.except_queues")


def launch_spec_of(standing: EffectiveFleet, app: str, environment: Mapping[str, str]) -> LaunchSpec:
    """The order for a fleet; `environment` is what every worker needs. The default fleet leaves the others' queues."""
    fleet = standing.fleet
    others = {EXCEPT_QUEUES: "".join(f"{queue}\n" for queue in standing.except_queues)}
    return LaunchSpec(
        fleet=standing.name,
        app=app,
        queues=standing.queues,
        capacity=fleet.capacity,
        image=fleet.image,
        command=fleet.command,
        environment={**environment, **fleet.environment, **(others if standing.except_queues else {})},
        cpus=fleet.cpus,
        memory_mib=fleet.memory_mib,
    )
