"""What an autoscaler sees of the store in one look, and a fleet's reading made of it.

Everything is counted in the store, shard by shard, never in the broker: so nothing sleeps that has work. Where a shard
does not answer, what the others hold is at least there: it may start workers, but none is stopped meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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

HALF_SECONDS = 60.0
"""After this much work, what was seen before counts for half."""

FIRST_LOOK = Unknown("not looked twice yet")
PRUNED = Unknown("ended jobs were removed since the last look")
NONE_ENDED = Unknown("no job has been seen to end")

RAN = frozenset({State.SUCCEEDED, State.FAILED})


class JobCounts(Struct, frozen=True):
    """The jobs of a fleet's queues, counted whole at one instant."""

    at: datetime
    queued: int
    running: int
    ended: Mapping[tuple[str, str, State], int]


class Throughput(Struct, frozen=True):
    """What is known of a fleet's jobs by watching them. Service is busy time over ends, both fading as more is seen."""

    before: JobCounts | None = None
    arrival_rate: Reading = FIRST_LOOK
    busy_seconds: float = 0.0
    ends: float = 0.0

    @property
    def service_seconds(self) -> Reading:
        return self.busy_seconds / self.ends if self.ends > 0 else NONE_ENDED


def job_counts_of(at: datetime, counts: Iterable[Count]) -> JobCounts:
    counts = list(counts)
    return JobCounts(
        at,
        sum(one.jobs for one in counts if one.state is State.QUEUED),
        sum(one.jobs for one in counts if one.state is State.RUNNING),
        {(one.queue, one.type, one.state): one.jobs for one in counts if one.state in TERMINAL},
    )


def update(flow: Throughput, now: JobCounts | Unknown) -> Throughput:
    """The flow after one more look. A look that was not whole, and what was pruned, say nothing about rates."""
    if isinstance(now, Unknown):
        return replace(flow, before=None, arrival_rate=now)
    before = flow.before
    span = 0.0 if before is None else (now.at - before.at).total_seconds()
    if before is None or span <= 0:
        return replace(flow, before=now, arrival_rate=flow.arrival_rate if before else FIRST_LOOK)
    if any(now.ended.get(name, 0) < jobs for name, jobs in before.ended.items()):
        return replace(flow, before=now, arrival_rate=PRUNED)
    return replace(_worked(flow, before, now, span), before=now, arrival_rate=_came(before, now) / span)


def _came(before: JobCounts, now: JobCounts) -> int:
    """Jobs that became due. Those waiting out a retry left the line for a while and may make this negative."""
    return max(0, _seen(now) - _seen(before))


def _seen(depths: JobCounts) -> int:
    return depths.queued + depths.running + sum(depths.ended.values())


def _worked(flow: Throughput, before: JobCounts, now: JobCounts, span: float) -> Throughput:
    busy = (before.running + now.running) / 2 * span
    ends = _ran(now) - _ran(before)
    if not busy and not ends:
        return flow
    fading = 0.5 ** (span / HALF_SECONDS)
    return replace(flow, busy_seconds=flow.busy_seconds * fading + busy, ends=flow.ends * fading + ends)


def _ran(depths: JobCounts) -> int:
    return sum(jobs for (_, _, state), jobs in depths.ended.items() if state in RAN)


T = TypeVar("T")

MOST_DUE = 1000
"""How many jobs that are due later are looked at, over all queues: those that are due first."""
MOST_TICKS = 200

SlotsDue = Sequence[tuple[str, datetime]]


class ShardSnapshot(Struct, frozen=True):
    """One shard, looked at."""

    counts: Sequence[Count]
    oldest: Mapping[str, datetime]
    held: Mapping[str, int]
    falling: SlotsDue


class Snapshot(Struct, frozen=True, kw_only=True):
    """The store, looked at. `missing` says, in words, what did not answer; empty when everything did."""

    at: datetime
    shards: Sequence[ShardSnapshot]
    missing: str
    ticks: SlotsDue
    registry: Registry
    rows: Mapping[str, Worker] | Unknown

    @property
    def held(self) -> Mapping[str, int]:
        """Running jobs by worker, from the store; where that cannot be seen whole, at least what workers said last."""
        held: Counter[str] = Counter()
        for shard in self.shards:
            held.update(shard.held)
        said = {} if isinstance(self.rows, Unknown) or not self.missing else self.rows
        return held | Counter({name: row.running for name, row in said.items()})

    def for_app(self, app: str) -> "Snapshot":
        """Without the jobs of types that only other apps have, and the queues in which there are no others."""
        known = self.registry
        foreign = {name for name, declared in known.types.items() if declared.apps and app not in declared.apps}
        if not foreign:
            return self
        queues = {known.types[name].queue for name in foreign}
        queues -= {declared.queue for name, declared in known.types.items() if name not in foreign}

        def is_own(type_name: str) -> bool:
            names = [name for name in known.handled_as(type_name) if name in known.types]
            return not names or any(name not in foreign for name in names)

        shards = [
            replace(
                shard,
                counts=[one for one in shard.counts if is_own(one.type)],
                oldest={queue: at for queue, at in shard.oldest.items() if queue not in queues},
                falling=[(queue, at) for queue, at in shard.falling if queue not in queues],
            )
            for shard in self.shards
        ]
        return replace(self, shards=shards, ticks=[(queue, at) for queue, at in self.ticks if queue not in queues])

    def for_workers_of(self, runs: Runs | None, app: str) -> "Snapshot":
        """Without waiting jobs that no worker of a fleet would run: they must not keep it at work for ever."""
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

        shards = [replace(shard, counts=[one for one in shard.counts if helps(one)]) for shard in self.shards]
        return replace(self, shards=shards)


async def observe(engine: Engine, ahead: timedelta) -> Snapshot:
    """One look at everything that is not a fleet's own. Unavailable when even the time is unknown."""
    now, catalog = await engine.store.now(), await engine.catalog.read()
    until = now + ahead
    shards = await asyncio.gather(*(_observe_shard(shard, until) for shard in engine.store.shards()))
    ticks = await _or_unknown(_ticks(engine, until, catalog.types))
    faults = [str(one.unknown) for one in (*shards, ticks) if isinstance(one, Unknown)]
    return Snapshot(
        at=now,
        shards=[shard for shard in shards if not isinstance(shard, Unknown)],
        missing="; ".join(dict.fromkeys(faults)) or ("" if shards else "there is no shard in use"),
        ticks=[] if isinstance(ticks, Unknown) else ticks,
        registry=catalog,
        rows=await _or_unknown(_rows(engine)),
    )


async def _observe_shard(shard: Shard, until: datetime) -> ShardSnapshot | Unknown:
    async def read() -> ShardSnapshot:
        return ShardSnapshot(
            await shard.counts(),
            await shard.oldest_due(),
            await shard.running_by_worker(),
            await shard.due_before(until, MOST_DUE),
        )

    return await _or_unknown(read())


async def _ticks(engine: Engine, until: datetime, types: Mapping[str, JobType]) -> SlotsDue:
    """The next tick of each schedule, as the job that it will be."""
    first = await engine.store.next_tick()
    if first is None or first >= until:
        return []
    due = await engine.store.due_schedules(until, MOST_TICKS)
    return [(_queue(one.schedule, types), at) for one in due if (at := one.schedule.next_tick_at) is not None]


def _queue(schedule: Schedule, types: Mapping[str, JobType]) -> str:
    declared = types.get(schedule.type)
    return schedule.queue or (schedule.type if declared is None else declared.queue)


async def _rows(engine: Engine) -> Mapping[str, Worker]:
    return {worker.id: worker for worker in await engine.queues.workers()}


async def _or_unknown(call: Awaitable[T]) -> T | Unknown:
    try:
        return await call
    except Unavailable as error:
        return Unknown(error.message)


def depths(standing: EffectiveFleet, sight: Snapshot) -> JobCounts | Unknown:
    """The fleet's jobs, where all of them could be counted."""
    return Unknown(sight.missing) if sight.missing else job_counts_of(sight.at, _own(standing, sight))


def reading_of(
    standing: EffectiveFleet,
    sight: Snapshot,
    crew: FleetWorkers | Unknown,
    flow: Throughput,
    startup: Reading,
    capacity: Tally,
) -> FleetReading:
    """What there is to decide by."""
    return FleetReading(
        at=sight.at,
        backlog=_backlog(standing, sight),
        running=_running(standing, sight),
        due_soon=Unknown(sight.missing) if sight.missing else _due_soon(standing, sight),
        oldest_wait_seconds=_oldest_wait(standing, sight),
        arrival_rate=flow.arrival_rate,
        service_seconds=flow.service_seconds,
        startup_seconds=startup,
        capacity=capacity,
        starting=_at(crew, WorkerStatus.STARTING),
        idle=_at(crew, WorkerStatus.IDLE),
        busy=_at(crew, WorkerStatus.BUSY),
        draining=_at(crew, WorkerStatus.DRAINING),
    )


def _own(standing: EffectiveFleet, sight: Snapshot) -> Iterable[Count]:
    """The fleet's jobs over all shards that answered."""
    total: Counter[tuple[str, str, State]] = Counter()
    for shard in sight.shards:
        for one in shard.counts:
            if standing.serves(one.queue):
                total[one.queue, one.type, one.state] += one.jobs
    return [Count(*about, jobs) for about, jobs in total.items()]


def _backlog(standing: EffectiveFleet, sight: Snapshot) -> Tally:
    """Jobs that are due and may be handed out. Not all of them could be seen: at least so many, if there are any."""
    wants = _wants(standing, sight)
    queued = sum(one.jobs for one in _own(standing, sight) if one.state is State.QUEUED and wants(one.queue))
    # Due but still called scheduled: whoever should have moved them on is late.
    overdue = sum(at <= sight.at and wants(queue) for shard in sight.shards for queue, at in shard.falling)
    return Unknown(sight.missing) if sight.missing and not queued + overdue else queued + overdue


def _running(standing: EffectiveFleet, sight: Snapshot) -> Tally:
    if sight.missing:
        return Unknown(sight.missing)
    return sum(one.jobs for one in _own(standing, sight) if one.state is State.RUNNING)


def _due_soon(standing: EffectiveFleet, sight: Snapshot) -> tuple[DueCount, ...]:
    wants = _wants(standing, sight)
    slots = [*sight.ticks, *(slot for shard in sight.shards for slot in shard.falling)]
    ahead = Counter(int((at - sight.at).total_seconds()) for queue, at in slots if at > sight.at and wants(queue))
    return tuple(DueCount(float(seconds), jobs) for seconds, jobs in sorted(ahead.items()))


def _oldest_wait(standing: EffectiveFleet, sight: Snapshot) -> Reading:
    if sight.missing:
        return Unknown(sight.missing)
    wants = _wants(standing, sight)
    oldest = [at for shard in sight.shards for queue, at in shard.oldest.items() if wants(queue)]
    return max(0.0, (sight.at - min(oldest)).total_seconds()) if oldest else 0.0


def _wants(standing: EffectiveFleet, sight: Snapshot) -> Callable[[str], bool]:
    """Whether jobs of a queue may be handed out to the fleet."""
    return lambda queue: queue not in sight.registry.paused and standing.serves(queue)


def _at(crew: FleetWorkers | Unknown, post: WorkerStatus) -> Tally:
    return crew if isinstance(crew, Unknown) else crew.count(post)
