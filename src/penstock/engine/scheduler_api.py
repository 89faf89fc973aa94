"""The scheduler's moves: what falls due, and ticks becoming jobs. The engine's own side of `Timekeeper`."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.parts import EngineParts
from penstock.engine.schedule_spec import tick_job
from penstock.engine.signals import ScheduleVersion
from penstock.model.errors import Invalid
from penstock.model.job import NewJob
from penstock.model.names import reason_of
from penstock.model.schedule import Decision, Every, Overlap, Schedule, Ticked, TickMove, TickRecord, Verdict
from penstock.model.wire.schedules import Agenda
from penstock.store import schedule_key

FAILPOINT = "PENSTOCK_FAILPOINT"
"""Names the place at which this process ends itself. Unset, and it should be, nothing happens anywhere."""

STATUS = 86
AFTER_TICK_COMMIT = "after-tick-commit"


def failpoint(place: str) -> None:
    """End the process on the spot, without a word to anyone, if the environment names this place."""
    if os.environ.get(FAILPOINT) == place:
        os._exit(STATUS)


ZERO = timedelta(0)
STALE = Ticked(applied=False)


class Ticks:
    """Keeps Timekeeper directly, over this process's store and broker."""

    def __init__(self, parts: EngineParts, changes: ScheduleVersion) -> None:
        self._store = parts.store
        self._catalog = parts.catalog
        self._tickets = parts.tickets
        self._signals = parts.signals
        self._meters = parts.meters
        self._allow_unknown = parts.settings.server.allow_unknown_types
        self._changes = changes

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ZERO, seen: str | None = None) -> Agenda:
        if seen is not None:
            await self._changes.wait_for_change(seen, wait)
        # Named before it is read: a change between the two is then read again, never missed.
        seen = self._changes.seen
        until = await self._store.now() + slot
        due = await self._store.due_schedules(until, limit)
        next_tick_at = await self._store.next_tick()
        # The time last, so that the span of the reading does not make the scheduler late.
        return Agenda(await self._store.now(), until, tuple(due), next_tick_at, seen, more=len(due) == limit)

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        return [ticked.applied for ticked in await self.tick(decisions)]

    async def close(self) -> None:
        """Nothing to let go of: the engine belongs to someone else."""

    async def tick(self, decisions: Sequence[Decision]) -> list[Ticked]:
        """Carry out what still holds, and tell what came of it. A verdict that can make no job is recorded as a skip.

        Durable first, then ticketed: whoever dies in between leaves a job that the dispatcher finds.
        """
        self._catalog.require_types()
        schedules = await self._store.get_schedules([decision.name for decision in decisions])
        reading = await self._catalog.read()
        standing = {
            index: self._move(decision, schedule, reading)
            for index, (decision, schedule) in enumerate(zip(decisions, schedules, strict=True))
            if schedule is not None and _stands(decision, schedule)
        }
        self._await_ends(standing.values(), schedules)
        ticked = dict(zip(standing, await self._tick(list(standing.values())), strict=True))
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
            # An error here would be met again at every try: the tick says why it gave no job, and time goes on.
            return _TickOutcome(TickRecord(verdict.at, skipped=reason_of(f"{error.code}: {error.message}")))
        return _TickOutcome(TickRecord(verdict.at, job=job.id), job)

    def _job(self, schedule: Schedule, at: datetime, reading: CatalogReading) -> NewJob:
        declared = reading.type(schedule.type, allow_unknown=self._allow_unknown)
        self._catalog.check(declared, schedule.params)
        return tick_job(schedule, declared, at, self._store.shard_for(schedule_key(schedule.name)))

    def _await_ends(self, moves: Iterable[TickMove], schedules: Sequence[Schedule | None]) -> None:
        """Before they are made, so that no end is missed; the ids of a move that is refused are another's to make."""
        heeding = {schedule.name for schedule in schedules if schedule is not None and _heeds_ends(schedule)}
        self._changes.await_end(job.id for move in moves if move.decision.name in heeding for job in move.jobs)


class _TickOutcome(Struct, frozen=True):
    """What one verdict becomes."""

    record: TickRecord
    job: NewJob | None = None


def _stands(decision: Decision, schedule: Schedule) -> bool:
    """False when it is plain that the store would refuse; the store alone decides."""
    return (decision.version, decision.expected_tick_at, decision.expected_pending_at) == (
        schedule.version,
        schedule.next_tick_at,
        schedule.pending_tick_at,
    )


def _heeds_ends(schedule: Schedule) -> bool:
    """True when the end of one job lets the next tick go."""
    return schedule.overlap is Overlap.QUEUE_ONE or (
        isinstance(schedule.when, Every) and schedule.when.after_completion
    )
