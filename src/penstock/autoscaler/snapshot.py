"""What an autoscaler reads from the store at one instant, and the reading of a fleet made of it.

Jobs are counted in the store, shard by shard, never in the broker, which may have lost tickets. Where a shard does not
answer, the counts of the others are a lower bound: they may start workers, but none is stopped meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler.workers import FleetWorkers, WorkerStatus
from penstock.engine import Engine
from penstock.engine.catalog import CatalogReading as Registry
from penstock.model.errors import Unavailable
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.fleet_readings import DueCount, FleetReading, Reading, Runs, Tally, Unknown
from penstock.model.job import Count
from penstock.model.lifecycle import TERMINAL, State
from penstock.model.schedule import Schedule
from penstock.model.workers import JobType, Worker
from penstock.store import Shard

MOST_DUE = 1000
"""How many jobs that are due later are read of a shard, over all queues: those that are due first."""
MOST_TICKS = 200
HALF_LIFE_SECONDS = 60.0
"""After this much work, earlier observations count for half."""

FIRST_LOOK = Unknown("not looked twice yet")
PRUNED = Unknown("ended jobs were removed since the last look")
NONE_ENDED = Unknown("no job has been seen to end")

RAN = frozenset({State.SUCCEEDED, State.FAILED})
COUNTED = TERMINAL | {State.QUEUED, State.RUNNING}

DueJobs = Sequence[tuple[str, datetime]]
"""Queue and due time of jobs that are due later."""
ShardReading = tuple[Sequence[Count], Mapping[str, datetime], Mapping[str, int], DueJobs]
"""Counts, the oldest due job of each queue, running jobs by worker, and jobs that are due later."""
JobCounts = Mapping[tuple[str, str, State], int]
"""Jobs by queue, type and state."""

T = TypeVar("T")


class Snapshot(Struct, frozen=True, kw_only=True):
    """All shards at one instant. `missing` names, as text, what did not answer; empty when everything did.

    `capped` names shards with more jobs than they count; empty when all could be counted.
    `oldest`: by queue, since when its oldest job has been due. `running`: running jobs by worker. `due_later`: jobs
    that are scheduled; `ticks`: jobs that schedules will submit. `rows`: the workers of the registry, by id.
    """

    at: datetime
    counts: Sequence[Count] = ()
    oldest: Mapping[str, datetime] = {}
    running: Mapping[str, int] = {}
    due_later: DueJobs = ()
    missing: str = ""
    capped: str = ""
    ticks: DueJobs = ()
    registry: Registry
    rows: Mapping[str, Worker] | Unknown

    @property
    def uncounted(self) -> str:
        """Why the counts are only lower bounds; empty when they are not."""
        return self.missing or self.capped

    @property
    def held(self) -> Mapping[str, int]:
        """Running jobs by worker, from the store. While a shard is missing, at least as many as the worker reported."""
        reported = {} if isinstance(self.rows, Unknown) or not self.missing else self.rows
        return Counter(self.running) | Counter({name: row.running for name, row in reported.items()})

    def for_app(self, app: str) -> "Snapshot":
        """Without jobs of types that only other apps have, and without queues that hold only such types."""
        known = self.registry
        foreign = {name for name, declared in known.types.items() if declared.apps and app not in declared.apps}
        if not foreign:
            return self
        queues = {known.types[name].queue for name in foreign}
        queues -= {declared.queue for name, declared in known.types.items() if name not in foreign}

        def is_own(type_name: str) -> bool:
            names = [name for name in known.handled_as(type_name) if name in known.types]
            return not names or any(name not in foreign for name in names)

        return replace(
            self,
            counts=[one for one in self.counts if is_own(one.type)],
            oldest={queue: at for queue, at in self.oldest.items() if queue not in queues},
            due_later=[(queue, at) for queue, at in self.due_later if queue not in queues],
            ticks=[(queue, at) for queue, at in self.ticks if queue not in queues],
        )

    def for_workers_of(self, runs: Runs | None, app: str) -> "Snapshot":
        """Without waiting jobs that no worker of the fleet would run: they would keep its workers idle for ever."""
        if runs is None:
            return self
        known = runs

        def helps(count: Count) -> bool:
            if count.state is not State.QUEUED:
                return True
            names = self.registry.handled_as(count.type)
            declared = [self.registry.types[name] for name in names if name in self.registry.types]
            newest = max((one.apps.get(app, one.declared_at) for one in declared), default=None)
            return not known.lacks(count.type, names, newest)

        return replace(self, counts=[one for one in self.counts if helps(one)])


async def observe(engine: Engine, ahead: timedelta) -> Snapshot:
    """Read everything that is not a fleet's own. Unavailable when not even the time can be read."""
    now, catalog = await engine.store.now(), await engine.catalog.read()
    until = now + ahead
    asked = engine.store.shards()
    shards = await asyncio.gather(*(_or_unknown(_read_shard(shard, until)) for shard in asked))
    ticks = await _or_unknown(_read_ticks(engine, until, catalog.types))
    faults = [str(one.unknown) for one in (*shards, ticks) if isinstance(one, Unknown)]
    found = [shard for shard in shards if not isinstance(shard, Unknown)]
    return Snapshot(
        at=now,
        counts=[one for counts, _, _, _ in found for one in counts],
        oldest=_earliest([oldest for _, oldest, _, _ in found]),
        running=sum((Counter(running) for _, _, running, _ in found), Counter[str]()),
        due_later=[one for _, _, _, due in found for one in due],
        missing="; ".join(dict.fromkeys(faults)) or ("" if shards else "there is no shard in use"),
        capped="; ".join(filter(None, map(_capped, asked, shards))),
        ticks=[] if isinstance(ticks, Unknown) else ticks,
        registry=catalog,
        rows=await _or_unknown(_read_workers(engine)),
    )


async def _read_shard(shard: Shard, until: datetime) -> ShardReading:
    return (
        await shard.counts(),
        await shard.oldest_due(),
        await shard.running_by_worker(),
        await shard.due_before(until, MOST_DUE),
    )


def _capped(shard: Shard, found: "ShardReading | Unknown") -> str:
    """Why the counts of a shard are lower bounds; empty if they are not, or there are none."""
    most = shard.capabilities.counts_up_to
    if most is None or isinstance(found, Unknown) or sum(one.jobs for one in found[0] if not one.state.terminal) < most:
        return ""
    return f"shard {shard.shard} counts at most {most:,} jobs that have not ended"


def _earliest(shards: Sequence[Mapping[str, datetime]]) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for oldest in shards:
        for queue, at in oldest.items():
            found[queue] = min(at, found.get(queue, at))
    return found


async def _read_ticks(engine: Engine, until: datetime, types: Mapping[str, JobType]) -> DueJobs:
    """The next tick of each schedule, as the job that it will submit."""
    first = await engine.store.next_tick()
    if first is None or first >= until:
        return []
    due = await engine.store.due_schedules(until, MOST_TICKS)
    return [(_queue(one.schedule, types), at) for one in due if (at := one.schedule.next_tick_at) is not None]


def _queue(schedule: Schedule, types: Mapping[str, JobType]) -> str:
    declared = types.get(schedule.type)
    return schedule.queue or (schedule.type if declared is None else declared.queue)


async def _read_workers(engine: Engine) -> Mapping[str, Worker]:
    return {worker.id: worker for worker in await engine.queues.workers()}


async def _or_unknown(call: Awaitable[T]) -> T | Unknown:
    try:
        return await call
    except Unavailable as error:
        return Unknown(error.message)


class Throughput(Struct, frozen=True):
    """Arrival rate and service time of a fleet's jobs, from successive counts. `at` and `counts` are the last ones.

    The service time is busy time over ended jobs; both fade as more is observed.
    """

    at: datetime | None = None
    counts: JobCounts = {}
    arrival_rate: Reading = FIRST_LOOK
    busy_seconds: float = 0.0
    ends: float = 0.0

    @property
    def service_seconds(self) -> Reading:
        return self.busy_seconds / self.ends if self.ends > 0 else NONE_ENDED


def count_jobs(effective: EffectiveFleet, snapshot: Snapshot) -> JobCounts | Unknown:
    """The fleet's jobs, if all of them could be counted."""
    return Unknown(snapshot.uncounted) if snapshot.uncounted else _own(effective, snapshot)


def update(throughput: Throughput, at: datetime, counts: JobCounts | Unknown) -> Throughput:
    """The throughput after one more count. Incomplete counts, and pruned jobs, say nothing about rates."""
    if isinstance(counts, Unknown):
        return replace(throughput, at=None, counts={}, arrival_rate=counts)
    before = throughput.counts
    span = 0.0 if throughput.at is None else (at - throughput.at).total_seconds()
    if throughput.at is None or span <= 0:
        rate = FIRST_LOOK if throughput.at is None else throughput.arrival_rate
        return replace(throughput, at=at, counts=counts, arrival_rate=rate)
    if any(counts.get(key, 0) < jobs for key, jobs in before.items() if key[2] in TERMINAL):
        return replace(throughput, at=at, counts=counts, arrival_rate=PRUNED)
    # Jobs that wait for a retry are not counted for a while, which may make the difference negative.
    arrived = max(0, _jobs(counts, COUNTED) - _jobs(before, COUNTED))
    return replace(_add_work(throughput, counts, span), at=at, counts=counts, arrival_rate=arrived / span)


def _add_work(throughput: Throughput, counts: JobCounts, span: float) -> Throughput:
    running = frozenset({State.RUNNING})
    busy = (_jobs(throughput.counts, running) + _jobs(counts, running)) / 2 * span
    ends = _jobs(counts, RAN) - _jobs(throughput.counts, RAN)
    if not busy and not ends:
        return throughput
    fading = 0.5 ** (span / HALF_LIFE_SECONDS)
    return replace(
        throughput, busy_seconds=throughput.busy_seconds * fading + busy, ends=throughput.ends * fading + ends
    )


def _jobs(counts: JobCounts, states: frozenset[State]) -> int:
    return sum(jobs for (_, _, state), jobs in counts.items() if state in states)


def reading_of(
    effective: EffectiveFleet,
    snapshot: Snapshot,
    workers: FleetWorkers | Unknown,
    throughput: Throughput,
    startup: Reading,
    capacity: Tally,
) -> FleetReading:
    """The measurements that the policy decides by."""
    return FleetReading(
        at=snapshot.at,
        backlog=_backlog(effective, snapshot),
        running=_running(effective, snapshot),
        due_soon=Unknown(snapshot.missing) if snapshot.missing else _due_soon(effective, snapshot),
        oldest_wait_seconds=_oldest_wait(effective, snapshot),
        arrival_rate=throughput.arrival_rate,
        service_seconds=throughput.service_seconds,
        startup_seconds=startup,
        capacity=capacity,
        starting=_count_workers(workers, WorkerStatus.STARTING),
        idle=_count_workers(workers, WorkerStatus.IDLE),
        busy=_count_workers(workers, WorkerStatus.BUSY),
        draining=_count_workers(workers, WorkerStatus.DRAINING),
        lost=_count_workers(workers, WorkerStatus.LOST),
    )


def _own(effective: EffectiveFleet, snapshot: Snapshot) -> JobCounts:
    """The jobs of the fleet's queues, over all shards that answered."""
    total: Counter[tuple[str, str, State]] = Counter()
    for one in snapshot.counts:
        if effective.serves(one.queue):
            total[one.queue, one.type, one.state] += one.jobs
    return total


def _backlog(effective: EffectiveFleet, snapshot: Snapshot) -> Tally:
    """Jobs that are due and may be handed out. While not all could be counted: those that were, if there are any."""
    wants = _wants(effective, snapshot)
    counts = _own(effective, snapshot)
    queued = sum(jobs for (queue, _, state), jobs in counts.items() if state is State.QUEUED and wants(queue))
    # Due but still in state scheduled: their dispatcher is late.
    overdue = sum(at <= snapshot.at and wants(queue) for queue, at in snapshot.due_later)
    return Unknown(snapshot.uncounted) if snapshot.uncounted and not queued + overdue else queued + overdue


def _running(effective: EffectiveFleet, snapshot: Snapshot) -> Tally:
    counts = count_jobs(effective, snapshot)
    return counts if isinstance(counts, Unknown) else _jobs(counts, frozenset({State.RUNNING}))


def _due_soon(effective: EffectiveFleet, snapshot: Snapshot) -> tuple[DueCount, ...]:
    wants = _wants(effective, snapshot)
    due = [at for queue, at in (*snapshot.ticks, *snapshot.due_later) if at > snapshot.at and wants(queue)]
    ahead = Counter(int((at - snapshot.at).total_seconds()) for at in due)
    return tuple(DueCount(float(seconds), jobs) for seconds, jobs in sorted(ahead.items()))


def _oldest_wait(effective: EffectiveFleet, snapshot: Snapshot) -> Reading:
    if snapshot.missing:
        return Unknown(snapshot.missing)
    wants = _wants(effective, snapshot)
    oldest = [at for queue, at in snapshot.oldest.items() if wants(queue)]
    return max(0.0, (snapshot.at - min(oldest)).total_seconds()) if oldest else 0.0


def _wants(effective: EffectiveFleet, snapshot: Snapshot) -> Callable[[str], bool]:
    """Whether jobs of a queue may be handed out to the fleet."""
    return lambda queue: queue not in snapshot.registry.paused and effective.serves(queue)


def _count_workers(workers: FleetWorkers | Unknown, status: WorkerStatus) -> Tally:
    return workers if isinstance(workers, Unknown) else workers.count(status)
