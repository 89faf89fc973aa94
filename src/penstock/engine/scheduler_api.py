"""The scheduler's operations: due schedules, and ticks that become jobs. Implements `SchedulerApi`."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.parts import EngineParts
from penstock.engine.schedule_spec import tick_job
from penstock.model.errors import Invalid
from penstock.model.job import NewJob
from penstock.model.names import reason_of
from penstock.model.schedule import Decision, Every, Overlap, Schedule, Ticked, TickMove, TickRecord, Verdict
from penstock.model.wire.schedules import Agenda
from penstock.store import schedule_key

FAILPOINT = "PENSTOCK_FAILPOINT"
"""The variable that names the place at which this process ends itself, in tests of crashes. Normally unset."""

STATUS = 86
AFTER_TICK_COMMIT = "after-tick-commit"


def failpoint(place: str) -> None:
    """End the process at once, without any cleanup, if the environment names this place."""
    if os.environ.get(FAILPOINT) == place:
        os._exit(STATUS)


ZERO = timedelta(0)
STALE = Ticked(applied=False)


class Ticks:
    """The scheduler's operations, directly on this process's store and broker."""

    def __init__(self, parts: EngineParts) -> None:
        self._store = parts.store
        self._catalog = parts.catalog
        self._tickets = parts.tickets
        self._signals = parts.signals
        self._meters = parts.meters
        self._allow_unknown = parts.settings.server.allow_unknown_types
        self._version = parts.schedule_version

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ZERO, seen: str | None = None) -> Agenda:
        if seen is not None:
            await self._version.wait_for_change(seen, wait)
        # The version before the reads: a change between the two is read again, never missed.
        seen = self._version.seen
        until = await self._store.now() + slot
        due = await self._store.due_schedules(until, limit)
        next_tick_at = await self._store.next_tick()
        # The time last, so that the duration of the reads does not make the scheduler late.
        return Agenda(
            await self._store.now(),
            until,
            tuple(due),
            next_tick_at,
            seen,
            more=len(due) == limit,
            verdicts_max=self._store.capabilities.tick_verdicts,
        )

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        return [ticked.applied for ticked in await self.tick(decisions)]

    async def close(self) -> None:
        """Does nothing: the engine is closed by its owner."""

    async def tick(self, decisions: Sequence[Decision]) -> list[Ticked]:
        """Apply the decisions that still hold. A verdict of which no job can be made is recorded as a skip.

        The jobs are durable before their tickets are published: if the process dies in between, the dispatcher finds
        them.
        """
        self._catalog.require_types()
        schedules = await self._store.get_schedules([decision.name for decision in decisions])
        reading = await self._catalog.read()
        moves = {
            index: self._move(decision, schedule, reading)
            for index, (decision, schedule) in enumerate(zip(decisions, schedules, strict=True))
            if schedule is not None and _is_current(decision, schedule)
        }
        self._await_ends(moves.values(), schedules)
        ticked = dict(zip(moves, await self._tick(list(moves.values())), strict=True))
        return [ticked.get(index, STALE) for index in range(len(decisions))]

    async def _tick(self, moves: Sequence[TickMove]) -> list[Ticked]:
        if not moves:
            return []
        marked = await self._tickets.mark([job for move in moves for job in move.jobs])
        by_id = {job.id: job for job in marked}
        ready = [replace(move, jobs=tuple(by_id[job.id] for job in move.jobs)) for move in moves]
        ticked = await self._store.tick(ready, self._tickets.ticket_for)
        failpoint(AFTER_TICK_COMMIT)
        await self._tickets.publish_marked(marked, [job for one in ticked for job in one.jobs])
        self._signals.publish_events([event for one in ticked for event in (*one.events, *one.yielded)])
        self._note(ready, ticked)
        return ticked

    def _note(self, moves: Sequence[TickMove], ticked: Sequence[Ticked]) -> None:
        records = sum(len(move.records) for move, one in zip(moves, ticked, strict=True) if one.applied)
        jobs = sum(len(one.jobs) for one in ticked)
        self._meters.note_ticks(jobs=jobs, skips=max(0, records - jobs))

    def _move(self, decision: Decision, schedule: Schedule, reading: CatalogReading) -> TickMove:
        outcomes = [self._outcome(schedule, verdict, reading) for verdict in decision.verdicts]
        records = tuple(outcome.record for outcome in outcomes)
        return TickMove(
            decision=decision,
            records=records,
            jobs=tuple(outcome.job for outcome in outcomes if outcome.job is not None),
        )

    def _outcome(self, schedule: Schedule, verdict: Verdict, reading: CatalogReading) -> "_TickOutcome":
        if verdict.skipped is not None:
            return _TickOutcome(TickRecord(verdict.at, skipped=verdict.skipped))
        try:
            job = self._job(schedule, verdict.at, reading)
        except Invalid as error:
            # Every retry would fail alike: record why this tick made no job, and go on to the next.
            return _TickOutcome(TickRecord(verdict.at, skipped=reason_of(f"{error.code}: {error.message}")))
        return _TickOutcome(TickRecord(verdict.at, job=job.id), job)

    def _job(self, schedule: Schedule, at: datetime, reading: CatalogReading) -> NewJob:
        declared = reading.type(schedule.type, allow_unknown=self._allow_unknown)
        self._catalog.check(declared, schedule.params)
        return tick_job(schedule, declared, at, self._store.shard_for(schedule_key(schedule.name)))

    def _await_ends(self, moves: Iterable[TickMove], schedules: Sequence[Schedule | None]) -> None:
        """Called before the jobs are made, so that no end is missed."""
        waiting = {schedule.name for schedule in schedules if schedule is not None and _waits_for_ends(schedule)}
        self._version.await_end(job.id for move in moves if move.decision.name in waiting for job in move.jobs)


class _TickOutcome(Struct, frozen=True):
    """The record of one verdict, and its job unless it was skipped."""

    record: TickRecord
    job: NewJob | None = None


def _is_current(decision: Decision, schedule: Schedule) -> bool:
    """False if the store would certainly refuse the decision; only the store decides."""
    return (decision.version, decision.expected_tick_at, decision.expected_pending_at) == (
        schedule.version,
        schedule.next_tick_at,
        schedule.pending_tick_at,
    )


def _waits_for_ends(schedule: Schedule) -> bool:
    """Whether the next tick may wait for the end of a job."""
    return schedule.overlap is Overlap.QUEUE_ONE or (
        isinstance(schedule.when, Every) and schedule.when.after_completion
    )
