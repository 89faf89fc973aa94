"""The controller of one fleet: observe its workers, decide, act, and keep what the next step must know."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler.backends import FleetBackend, FleetMember
from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide, manual_decision, watched_decision
from penstock.autoscaler.snapshot import Snapshot, Throughput, count_jobs, reading_of, update
from penstock.autoscaler.workers import (
    AT_WORK,
    FleetWorker,
    FleetWorkers,
    Knowledge,
    StartBackoff,
    WorkerStatus,
    failed_starts,
    fleet_workers_of,
    launch_spec_of,
    longest_idle,
)
from penstock.engine import Engine
from penstock.model.clock import seconds
from penstock.model.errors import FleetUnavailable, Unavailable
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.fleet_readings import FleetReading, Reading, Runs, Tally, Unknown, runs_of
from penstock.model.wire.fleets import DECISIONS_KEPT, FleetDecision, FleetRecord, workers_of
from penstock.model.workers import WorkerState

logger = logging.getLogger("penstock.autoscaler")

ZERO = timedelta(0)
LISTED_WITHIN = timedelta(seconds=30)
"""A worker that was started and is not listed by then counts as not started."""
ASK_AGAIN = timedelta(seconds=10)
"""A worker that was asked to stop and is not draining by then is asked again."""
NEWEST_PART = 0.5
"""How much the latest start-up counts against those before it."""

T = TypeVar("T")

MayAct = Callable[[], bool]

AT_MOST_EVERY = timedelta(seconds=1)
AT_LEAST_EVERY = timedelta(seconds=10)


class ControllerContext(Struct, frozen=True):
    """What all fleets of an autoscaler share. `app` is what workers import, `app_name` its name in the registry."""

    engine: Engine
    backend: FleetBackend
    app: str
    app_name: str
    environment: Mapping[str, str]
    holder: str


class FleetController:
    """One fleet, while this autoscaler leads. Losing what it remembers does little harm: it is learned again."""

    def __init__(self, name: str, context: ControllerContext, before: FleetRecord | None) -> None:
        self._name = name
        self._context = context
        self._engine = context.engine
        self._backend = context.backend
        self._memory = Memory()
        self._throughput = Throughput()
        self._backoff = StartBackoff()
        self._startup: Reading = _known_before(None if before is None else before.latest.reading.startup_seconds)
        self._capacity: Tally = _known_before(None if before is None else before.latest.reading.capacity)
        self._runs = None if before is None else before.runs
        self._ordered: dict[str, datetime] = {}
        self._fresh: set[str] = set()
        self._joined: dict[str, datetime] = {}
        self._asked: dict[str, datetime] = {}
        self._idle_since: dict[str, datetime] = {}
        self.recording = DecisionRecord(context.holder, context.app_name, before)
        self.workers: FleetWorkers | Unknown = Unknown()

    @property
    def startup(self) -> Reading:
        return self._startup

    @property
    def sleeps(self) -> bool:
        """Whether no worker takes jobs, and none is starting that will."""
        if isinstance(self.workers, Unknown) or self._ordered:
            return False
        return all(worker.status not in AT_WORK or worker.name in self._asked for worker in self.workers.workers)

    async def step(self, effective: EffectiveFleet, snapshot: Snapshot, may_act: MayAct) -> None:
        """Observe, decide, act and record once. What could not be done is recorded and tried at the next step."""
        now = self._engine.clock.now()
        self.workers, external = await self._observe(snapshot, now), await self._read_external()
        snapshot = snapshot.for_workers_of(self._runs, self._context.app_name)
        self._throughput = update(self._throughput, snapshot.at, count_jobs(effective, snapshot))
        reading = reading_of(effective, snapshot, self.workers, self._throughput, self._startup, self._capacity)
        decision = self._decide(effective, reading, external)
        applied = replace(decision, start=0, stop=0)
        if external is None and self._has_work(decision) and may_act():
            applied = await self._act(effective, decision, now)
        self._note(effective, decision, applied, now)

    async def _observe(self, snapshot: Snapshot, now: datetime) -> FleetWorkers | Unknown:
        """The workers of the fleet, after learning from what happened to them."""
        if isinstance(snapshot.rows, Unknown):
            return snapshot.rows
        try:
            members = await self._backend.members(self._name)
        except FleetUnavailable as error:
            return Unknown(error.message)
        self._forget_old(members, now)
        asked = {name for name, at in self._asked.items() if now - at < ASK_AGAIN}
        known = Knowledge(
            rows=snapshot.rows,
            held=snapshot.held,
            ordered=self._ordered,
            asked=asked,
            joined=self._joined,
            elsewhere=self._backend.elsewhere(self._name, snapshot.rows),
        )
        found = fleet_workers_of(members, known, now, self._patience(snapshot))
        self._learn(found, now)
        await self._forget_ended(found, snapshot.rows, now)
        return found

    def _patience(self, snapshot: Snapshot) -> timedelta:
        """How long a silent worker is waited for; without limit while a shard is missing, which may hold its report."""
        return timedelta.max if snapshot.missing else seconds(self._engine.settings.fleet.join_seconds)

    def _forget_old(self, members: Sequence[FleetMember], now: datetime) -> None:
        listed = {member.name for member in members}
        self._ordered = {
            name: at for name, at in self._ordered.items() if name not in listed and now - at < LISTED_WITHIN
        }
        self._asked = {name: at for name, at in self._asked.items() if name in listed}

    def _learn(self, found: FleetWorkers, now: datetime) -> None:
        """Learn start-up time, capacity, the types that workers run, and since when each is idle."""
        heard = [worker.row for worker in found.workers if worker.row and worker.status is not WorkerStatus.LOST]
        self._runs = runs_of(heard) or self._runs
        for worker in found.workers:
            if worker.row is not None:
                self._joined[worker.name] = now
                self._capacity = worker.row.capacity
                self._learn_startup(worker)
        idle = {worker.name for worker in found.in_status(WorkerStatus.IDLE)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        present = {worker.name for worker in found.workers}
        known = present | {member.name for member in found.ended}
        self._joined = {name: at for name, at in self._joined.items() if name in known}
        self._fresh &= present

    def _learn_startup(self, worker: FleetWorker) -> None:
        if worker.name in self._fresh and worker.row is not None and worker.row.seen_at is not None:
            self._fresh.discard(worker.name)
            took = max(0.0, (worker.row.seen_at - worker.started_at).total_seconds())
            before = took if isinstance(self._startup, Unknown) else self._startup
            self._startup = before + NEWEST_PART * (took - before)

    async def _forget_ended(self, found: FleetWorkers, rows: Mapping[str, object], now: datetime) -> None:
        """Remove ended workers from the registry; if they ended right after their start, slow the next starts."""
        why = failed_starts(found.ended, frozenset(self._joined), frozenset(self._asked), now)
        self._backoff = self._backoff.rested(now) if why is None else self._backoff.failed(now, why)
        if why is not None:
            logger.warning("fleet %s: %s", self._name, self._backoff.describe(now))
        for member in found.ended:
            self._joined.pop(member.name, None)
            if member.name in rows:
                await self._engine.worker_api.leave(member.name)

    async def _read_external(self) -> Tally | None:
        """How many workers something else wants, if that scales the fleet; Unknown if it does and cannot be asked."""
        try:
            return await self._backend.external_count(self._name)
        except FleetUnavailable as error:
            return Unknown(error.message)

    def _decide(self, effective: EffectiveFleet, reading: FleetReading, external: Tally | None) -> FleetDecision:
        if external is not None:
            return watched_decision(external, reading)
        manual = manual_decision(effective, reading)
        if manual is not None:
            return manual
        decision, self._memory = decide(effective.fleet, reading, self._memory)
        return decision

    def _has_work(self, decision: FleetDecision) -> bool:
        late = isinstance(self.workers, FleetWorkers) and self.workers.late
        return bool(decision.start or decision.stop or late)

    async def _act(self, effective: EffectiveFleet, decision: FleetDecision, now: datetime) -> FleetDecision:
        """The decision with the numbers of workers that were started and asked to stop."""
        try:
            await self._end_late(now)
            started = await self._start(effective, decision, now)
            stopped = await self._stop(decision.stop, now) if decision.stop else 0
            return replace(decision, start=started, stop=stopped)
        except FleetUnavailable as error:
            self._backoff = self._backoff.failed(now, error.message)
            logger.warning("fleet %s: %s", self._name, error.message)
        except Unavailable as error:
            logger.debug("fleet %s: no worker is stopped without a look: %s", self._name, error.message)
        return replace(decision, start=0, stop=0)

    async def _end_late(self, now: datetime) -> None:
        if isinstance(self.workers, Unknown) or not self.workers.late:
            return
        late = ", ".join(self.workers.late)
        self._backoff = self._backoff.failed(now, f"{late} did not join in time, or went silent")
        logger.warning("fleet %s: ended, as they did not join in time or went silent: %s", self._name, late)
        await self._backend.stop(self._name, self.workers.late, ZERO)
        self._asked.update(dict.fromkeys(self.workers.late, now))

    async def _start(self, effective: EffectiveFleet, decision: FleetDecision, now: datetime) -> int:
        well = isinstance(self.workers, FleetWorkers) and any(
            self.workers.in_status(status) for status in (WorkerStatus.IDLE, WorkerStatus.BUSY)
        )
        count = self._backoff.allows(decision.start, now, any_well=well)
        if not count:
            return 0
        spec = launch_spec_of(effective, self._context.app, self._context.environment)
        names = await self._backend.start(spec, count)
        self._ordered.update(dict.fromkeys(names, now))
        self._fresh.update(names)
        if len(names) < count:
            self._backoff = self._backoff.failed(now, f"{count - len(names)} of {count} could not be started")
        return len(names)

    async def _stop(self, count: int, now: datetime) -> int:
        """Ask up to `count` workers to stop that are still idle: the snapshot may be out of date."""
        if isinstance(self.workers, Unknown):
            return 0
        candidates = longest_idle(self.workers, self._idle_since, len(self.workers.workers))
        names = await self._read_idle(candidates, count)
        if names:
            await self._backend.stop(self._name, names, None)
            self._asked.update(dict.fromkeys(names, now))
        return len(names)

    async def _read_idle(self, names: Sequence[str], count: int) -> list[str]:
        """Up to `count` of them that are ready and run nothing now; Unavailable if a shard does not answer."""
        rows = [row for row in await self._engine.queues.workers() if row.state is WorkerState.READY]
        # A store that shows a claim late may not show what the worker itself has reported.
        prompt = self._engine.store.capabilities.prompt_lines
        ready = {row.id for row in rows if prompt or not row.running}
        for shard in self._engine.store.shards():
            ready -= set(await shard.running_by_worker())
        return [name for name in names if name in ready][:count]

    def _note(self, effective: EffectiveFleet, decision: FleetDecision, applied: FleetDecision, now: datetime) -> None:
        trouble = self._backoff.describe(now)
        if trouble and decision.start > applied.start:
            applied = replace(applied, reason=f"{decision.reason}; {trouble}")
        if applied.start or applied.stop:
            logger.info("fleet %s: %s", self._name, applied.reason)
        self.recording.note(effective, applied, trouble, self._runs)


def _known_before(value: T | None) -> T | Unknown:
    return Unknown("no worker of the fleet has been seen yet") if value is None else value


class DecisionRecord:
    """One fleet's record, written when it has changed and at least every 10 seconds."""

    def __init__(self, by: str, app: str, before: FleetRecord | None) -> None:
        self._by = by
        self._app = app
        self._record = before
        self._written: FleetRecord | None = None
        self._written_at: datetime | None = None

    @property
    def record(self) -> FleetRecord | None:
        return self._record

    def note(self, effective: EffectiveFleet, decision: FleetDecision, trouble: str | None, runs: Runs | None) -> None:
        """Set the latest decision; it joins the list of decisions if it changed something."""
        before = self._record
        if before is None:
            before = FleetRecord(by=self._by, latest=replace(decision, desired=-1))
        counts = decision.start or decision.stop or decision.desired != before.latest.desired
        kept = (decision, *before.decisions)[:DECISIONS_KEPT] if counts else before.decisions
        self._record = FleetRecord(
            by=self._by,
            app=self._app,
            copy_of=effective.copy_of,
            queues=effective.queues,
            except_queues=effective.except_queues,
            latest=decision,
            decisions=kept,
            started=before.started + decision.start,
            stopped=before.stopped + decision.stop,
            starts=before.starts + bool(decision.start),
            stops=before.stops + bool(decision.stop),
            trouble=trouble,
            runs=runs,
        )

    def due(self, now: datetime) -> FleetRecord | None:
        """The record, if it should be written now; else None."""
        if self._record is None or self._written is None or self._written_at is None:
            return self._record
        since = now - self._written_at
        changed = since >= AT_MOST_EVERY and _shown(self._record) != _shown(self._written)
        return self._record if changed or since >= AT_LEAST_EVERY else None

    def mark_written(self, record: FleetRecord, now: datetime) -> None:
        self._written, self._written_at = record, now


def _shown(record: FleetRecord) -> tuple[object, ...]:
    """What must be shown without delay. The backlog changes all the time, and may be some seconds old."""
    latest = record.latest
    return record.by, record.decisions, latest.desired, workers_of(latest.reading), record.trouble is None
