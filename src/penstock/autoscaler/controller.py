"""Tending one fleet: look at its crew, decide, act, and keep what must be known at the next look."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler.backends import FleetBackend, FleetMember
from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide
from penstock.autoscaler.policy_input import LOOK_SECONDS
from penstock.autoscaler.snapshot import Snapshot, Throughput, depths, reading_of, update
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
from penstock.model.fleet_readings import FleetReading, Reading, Runs, ScalingDecision, Tally, Unknown, known, runs_of
from penstock.model.wire.fleets import DECISIONS_KEPT, FleetDecision, FleetRecord, look_of, workers_of
from penstock.model.workers import WorkerState


def manual_decision(standing: EffectiveFleet, reading: FleetReading) -> ScalingDecision | None:
    """What an operator has ordered; None where the policy decides."""
    present = _present(reading)
    if standing.paused:
        return _decision(present or 0, "paused: left as it is")
    if standing.queues == ():
        return _towards(0, present, reading, "serves no queue")
    if standing.count is not None:
        return _towards(standing.count, present, reading, "scaled by hand")
    return None


def _towards(count: int, present: int | None, reading: FleetReading, why: str) -> ScalingDecision:
    if present is None or not known(reading.idle):
        return _decision(count, f"{why} to {count}; hold: its workers cannot be seen")
    start, stop = max(0, count - present), min(reading.idle, max(0, present - count))
    return _decision(count, f"{why} to {count}", start, stop)


def _decision(desired: int, reason: str, start: int = 0, stop: int = 0) -> ScalingDecision:
    return ScalingDecision(desired=desired, start=start, stop=stop, reason=reason, look_again_seconds=LOOK_SECONDS)


def _present(reading: FleetReading) -> int | None:
    counts = (reading.starting, reading.idle, reading.busy)
    return sum(count for count in counts if known(count)) if all(map(known, counts)) else None


AT_MOST_EVERY = timedelta(seconds=1)
AT_LEAST_EVERY = timedelta(seconds=10)


class DecisionRecord:
    """One fleet's record. `due` says when it is worth writing."""

    def __init__(self, by: str, app: str, before: FleetRecord | None) -> None:
        self._by = by
        self._app = app
        self._record = before
        self._written: FleetRecord | None = None
        self._written_at: datetime | None = None

    @property
    def record(self) -> FleetRecord | None:
        return self._record

    def note(self, standing: EffectiveFleet, decision: FleetDecision, trouble: str | None, runs: Runs | None) -> None:
        """One more decision; it joins the others if it changed something."""
        before = self._record
        if before is None:
            before = FleetRecord(by=self._by, latest=replace(decision, desired=-1))
        counts = decision.start or decision.stop or decision.desired != before.latest.desired
        kept = (decision, *before.decisions)[:DECISIONS_KEPT] if counts else before.decisions
        self._record = FleetRecord(
            by=self._by,
            app=self._app,
            copy_of=standing.copy_of,
            queues=standing.queues,
            except_queues=standing.except_queues,
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
        """The record, if it should be written now."""
        if self._record is None or self._written is None or self._written_at is None:
            return self._record
        since = now - self._written_at
        changed = since >= AT_MOST_EVERY and _face(self._record) != _face(self._written)
        return self._record if changed or since >= AT_LEAST_EVERY else None

    def written(self, record: FleetRecord, now: datetime) -> None:
        self._written, self._written_at = record, now


def _face(record: FleetRecord) -> tuple[object, ...]:
    """What people look at; how much waits changes with every look, and may be some seconds old."""
    latest = record.latest
    return record.by, record.decisions, latest.desired, workers_of(latest.reading), record.trouble is None


logger = logging.getLogger("penstock.autoscaler")

ZERO = timedelta(0)
LISTED_WITHIN = timedelta(seconds=30)
"""A worker that was started but is not listed by then never came to be."""
ASK_AGAIN = timedelta(seconds=10)
"""One that was asked to stop and does not look like it by then was not reached."""
NEWEST_PART = 0.5
"""How much the latest start-up counts against those before it."""

T = TypeVar("T")

MayAct = Callable[[], bool]


class ControllerContext(Struct, frozen=True):
    """What all fleets of an autoscaler share. `app` is what workers import, `app_name` how the registry calls it."""

    engine: Engine
    backend: FleetBackend
    app: str
    app_name: str
    environment: Mapping[str, str]
    holder: str


class AppliedDecision(Struct, frozen=True):
    """What came of a decision."""

    started: int = 0
    stopped: int = 0


class FleetController:
    """One fleet, as long as this autoscaler is the one that acts. What it knows may be lost: little is worse then."""

    def __init__(self, name: str, around: ControllerContext, before: FleetRecord | None) -> None:
        self._name = name
        self._around = around
        self._engine = around.engine
        self._backend = around.backend
        self._memory = Memory()
        self._flow = Throughput()
        self._backoff = StartBackoff()
        self._startup: Reading = _known_before(None if before is None else before.latest.reading.startup_seconds)
        self._capacity: Tally = _known_before(None if before is None else before.latest.reading.capacity)
        self._runs = None if before is None else before.runs
        self._ordered: dict[str, datetime] = {}
        self._fresh: set[str] = set()
        self._joined: dict[str, datetime] = {}
        self._asked: dict[str, datetime] = {}
        self._idle_since: dict[str, datetime] = {}
        self.recording = DecisionRecord(around.holder, around.app_name, before)
        self.crew: FleetWorkers | Unknown = Unknown()

    @property
    def startup(self) -> Reading:
        return self._startup

    @property
    def sleeps(self) -> bool:
        """Whether there is nobody, and nobody on the way, who would take work."""
        if isinstance(self.crew, Unknown) or self._ordered:
            return False
        return all(hand.post not in AT_WORK or hand.name in self._asked for hand in self.crew.hands)

    async def step(self, standing: EffectiveFleet, sight: Snapshot, may_act: MayAct) -> timedelta:
        """One look and what follows from it; when to look again. What could not be done is told and tried later."""
        now = self._engine.clock.now()
        self.crew = await self._observe(sight, now)
        sight = sight.for_workers_of(self._runs, self._around.app_name)
        self._flow = update(self._flow, depths(standing, sight))
        reading = reading_of(standing, sight, self.crew, self._flow, self._startup, self._capacity)
        decision = self._decide(standing, reading)
        done = await self._act(standing, decision, now) if self._is_due(decision, may_act) else AppliedDecision()
        self._note(standing, decision, done, reading, now)
        return seconds(decision.look_again_seconds)

    # -- looking

    async def _observe(self, sight: Snapshot, now: datetime) -> FleetWorkers | Unknown:
        """Who there is, after what has happened to them is taken in."""
        if isinstance(sight.rows, Unknown):
            return sight.rows
        try:
            members = await self._backend.members(self._name)
        except FleetUnavailable as error:
            return Unknown(error.message)
        self._forget_old(members, now)
        asked = {name for name, at in self._asked.items() if now - at < ASK_AGAIN}
        known = Knowledge(
            rows=sight.rows,
            held=sight.held,
            ordered=self._ordered,
            asked=asked,
            joined=self._joined,
            elsewhere=self._backend.elsewhere(self._name, sight.rows),
        )
        crew = fleet_workers_of(members, known, now, self._patience(sight))
        self._learn(crew, now)
        await self._forget_ended(crew, sight.rows, now)
        return crew

    def _patience(self, sight: Snapshot) -> timedelta:
        """How long who has not been heard from is waited for; for ever while not everything can be heard."""
        return timedelta.max if sight.missing else seconds(self._engine.settings.fleet.join_seconds)

    def _forget_old(self, members: Sequence[FleetMember], now: datetime) -> None:
        listed = {member.name for member in members}
        self._ordered = {
            name: at for name, at in self._ordered.items() if name not in listed and now - at < LISTED_WITHIN
        }
        self._asked = {name: at for name, at in self._asked.items() if name in listed}

    def _learn(self, crew: FleetWorkers, now: datetime) -> None:
        """Start-up time, capacity, what they run, and since when who is idle."""
        self._runs = (
            runs_of(hand.row for hand in crew.hands if hand.row and hand.post is not WorkerStatus.LOST) or self._runs
        )
        for hand in crew.hands:
            if hand.row is not None:
                self._joined[hand.name] = now
                self._capacity = hand.row.capacity
                self._learn_startup(hand)
        idle = {hand.name for hand in crew.at(WorkerStatus.IDLE)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        there = {hand.name for hand in crew.hands}
        known = there | {member.name for member in crew.ended}
        self._joined = {name: at for name, at in self._joined.items() if name in known}
        self._fresh &= there

    def _learn_startup(self, hand: FleetWorker) -> None:
        if hand.name in self._fresh and hand.row is not None and hand.row.seen_at is not None:
            self._fresh.discard(hand.name)
            took = max(0.0, (hand.row.seen_at - hand.started_at).total_seconds())
            before = took if isinstance(self._startup, Unknown) else self._startup
            self._startup = before + NEWEST_PART * (took - before)

    async def _forget_ended(self, crew: FleetWorkers, rows: Mapping[str, object], now: datetime) -> None:
        """Those that ended are no longer known; if they did so at once, the next ones are started more slowly."""
        why = failed_starts(crew.ended, frozenset(self._joined), frozenset(self._asked), now)
        self._backoff = self._backoff.rested(now) if why is None else self._backoff.failed(now, why)
        if why is not None:
            logger.warning("fleet %s: %s", self._name, self._backoff.told(now))
        for member in crew.ended:
            self._joined.pop(member.name, None)
            if member.name in rows:
                await self._engine.worker_api.leave(member.name)

    # -- deciding

    def _decide(self, standing: EffectiveFleet, reading: FleetReading) -> ScalingDecision:
        ordered = manual_decision(standing, reading)
        if ordered is not None:
            return ordered
        decision, self._memory = decide(standing.fleet, reading, self._memory)
        return decision

    def _is_due(self, decision: ScalingDecision, may_act: MayAct) -> bool:
        """Whether there is anything to do, and we are still the ones to do it."""
        late = isinstance(self.crew, FleetWorkers) and self.crew.late
        return bool(decision.start or decision.stop or late) and may_act()

    # -- acting

    async def _act(self, standing: EffectiveFleet, decision: ScalingDecision, now: datetime) -> AppliedDecision:
        try:
            await self._end_late(now)
            started = await self._start(standing, decision, now)
            return AppliedDecision(started, await self._stop(decision.stop, now) if decision.stop else 0)
        except FleetUnavailable as error:
            self._backoff = self._backoff.failed(now, error.message)
            logger.warning("fleet %s: %s", self._name, error.message)
        except Unavailable as error:
            logger.debug("fleet %s: nobody is stopped without a look: %s", self._name, error.message)
        return AppliedDecision()

    async def _end_late(self, now: datetime) -> None:
        if isinstance(self.crew, Unknown) or not self.crew.late:
            return
        late = ", ".join(self.crew.late)
        self._backoff = self._backoff.failed(now, f"{late} did not join in time, or went silent")
        logger.warning("fleet %s: ended, as they did not join in time or went silent: %s", self._name, late)
        await self._backend.stop(self._name, self.crew.late, ZERO)
        self._asked.update(dict.fromkeys(self.crew.late, now))

    async def _start(self, standing: EffectiveFleet, decision: ScalingDecision, now: datetime) -> int:
        well = isinstance(self.crew, FleetWorkers) and any(
            self.crew.at(post) for post in (WorkerStatus.IDLE, WorkerStatus.BUSY)
        )
        count = self._backoff.allows(decision.start, now, anybody_well=well)
        if not count:
            return 0
        order = launch_spec_of(standing, self._around.app, self._around.environment)
        names = await self._backend.start(order, count)
        self._ordered.update(dict.fromkeys(names, now))
        self._fresh.update(names)
        if len(names) < count:
            self._backoff = self._backoff.failed(now, f"{count - len(names)} of {count} could not be started")
        return len(names)

    async def _stop(self, count: int, now: datetime) -> int:
        """Ask so many to stop that are still idle: the look may be some time ago."""
        if isinstance(self.crew, Unknown):
            return 0
        names = await self._idle_of(longest_idle(self.crew, self._idle_since, len(self.crew.hands)), count)
        if names:
            await self._backend.stop(self._name, names, None)
            self._asked.update(dict.fromkeys(names, now))
        return len(names)

    async def _idle_of(self, names: Sequence[str], count: int) -> list[str]:
        """So many of them as are ready and run nothing now; Unavailable if not every shard says so."""
        ready = {row.id for row in await self._engine.queues.workers() if row.state is WorkerState.READY}
        for shard in self._engine.store.shards():
            ready -= set(await shard.running_by_worker())
        return [name for name in names if name in ready][:count]

    # -- telling

    def _note(
        self,
        standing: EffectiveFleet,
        decision: ScalingDecision,
        done: AppliedDecision,
        reading: FleetReading,
        now: datetime,
    ) -> None:
        trouble = self._backoff.told(now)
        reason = f"{decision.reason}; {trouble}" if trouble and decision.start > done.started else decision.reason
        lost = self.crew.count(WorkerStatus.LOST) if isinstance(self.crew, FleetWorkers) else None
        noted = FleetDecision(
            at=reading.at,
            desired=decision.desired,
            start=done.started,
            stop=done.stopped,
            reason=reason,
            reading=look_of(reading, lost),
        )
        if done.started or done.stopped:
            logger.info("fleet %s: %s", self._name, reason)
        self.recording.note(standing, noted, trouble, self._runs)


def _known_before(value: T | None) -> T | Unknown:
    return Unknown("no worker of the fleet has been seen yet") if value is None else value
