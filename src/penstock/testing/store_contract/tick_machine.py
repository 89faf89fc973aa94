"""Schedulers that act on old readings, beside a model: whatever their order, each tick has one job or one skip."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from penstock.model.job import NewJob
from penstock.model.schedule import Every, Schedule, TickMove, TickRecord
from penstock.store.seam import Store
from penstock.testing.clock import START, SimulatedClock
from penstock.testing.store_contract.schedules import apply, finish, job_of, move_of, put
from penstock.testing.store_contract.stage import StoreStage

T = TypeVar("T")
NewStore = Callable[[SimulatedClock], AbstractAsyncContextManager[Store]]

SPAN = timedelta(seconds=10)
NAMES = ["a", "b"]
EVERYTHING = 10_000

names = st.sampled_from(NAMES)
schedulers = st.integers(0, 2)


class TickMachine(RuleBasedStateMachine):
    """Give `new_store` in a subclass; `tick_machine` does. The model is what schedules and records there should be."""

    new_store: ClassVar[NewStore]

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._clock = SimulatedClock()
        self._opened = AsyncExitStack()
        store = self._run(self._opened.enter_async_context(type(self).new_store(self._clock)))
        self._stage = StoreStage(store, self._clock)
        self._schedules = {name: self._run(put(self._stage, name, when=Every(SPAN))) for name in NAMES}
        self._ticks: dict[str, dict[datetime, TickRecord]] = {name: {} for name in NAMES}
        self._active: dict[str, list[NewJob]] = {name: [] for name in NAMES}
        self._completed_at: dict[str, datetime] = {}
        self._readings = {who: dict(self._schedules) for who in range(3)}

    def teardown(self) -> None:
        self._run(self._opened.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @rule(seconds=st.integers(0, 60))
    def advance(self, seconds: int) -> None:
        self._clock.advance(timedelta(seconds=seconds))

    @rule(who=st.sets(schedulers, min_size=1))
    def read(self, who: set[int]) -> None:
        found = self._run(self._stage.store.get_schedules(NAMES))
        reading = {one.name: one for one in found if one is not None}
        self._readings |= {one: reading for one in who}

    @rule(who=schedulers, name=names, becomes=st.lists(st.booleans(), min_size=1, max_size=3), pend=st.booleans())
    def decide(self, who: int, name: str, becomes: list[bool], pend: bool) -> None:
        """The next ticks become jobs or skips, and one more may be left pending, from whatever was read."""
        read = self._readings[who][name]
        assert read.next_tick_at is not None
        ats = [read.next_tick_at + SPAN * number for number in range(len(becomes) + 1)]
        jobs = [job_of(self._stage, read, at) for at, as_job in zip(ats, becomes, strict=False) if as_job]
        skips = {at: "misfire" for at, as_job in zip(ats, becomes, strict=False) if not as_job}
        pending = read.pending_tick_at or (ats[-1] if pend else None)
        after = ats[-1] + SPAN if pending == ats[-1] else ats[-1]
        self._apply(read, move_of(read, jobs, skips, next_tick_at=after, pending_tick_at=pending))

    @rule(name=names)
    def take_up(self, name: str) -> None:
        """Every scheduler that has read of a pending tick makes it a job."""
        for readings in self._readings.values():
            read = readings[name]
            if read.pending_tick_at is not None:
                job = job_of(self._stage, read, read.pending_tick_at)
                self._apply(read, move_of(read, [job], next_tick_at=read.next_tick_at))

    @rule(who=schedulers, name=names, paused=st.sampled_from([False, False, True]))
    def replace(self, who: int, name: str, paused: bool) -> None:
        """From an old reading too: the next tick is then put back to one that has been decided."""
        read, current = self._readings[who][name], self._schedules[name]
        stored = self._run(self._stage.store.put_schedule(replace(read, paused=paused), read.version))
        assert (stored is not None) == (read.version == current.version)
        if stored is not None:
            changed = replace(read, paused=paused, version=read.version + 1, last_tick_at=current.last_tick_at)
            self._schedules[name] = changed
            self._readings[who] = self._readings[who] | {name: stored}

    @rule(name=names)
    def end_a_job(self, name: str) -> None:
        if self._active[name]:
            self._run(finish(self._stage, self._active[name].pop(0)))
            self._completed_at[name] = self._clock.now()

    @invariant()
    def schedules_agree(self) -> None:
        assert self._run(self._stage.store.schedules(None, 9)) == list(self._schedules.values())

    @invariant()
    def no_tick_twice(self) -> None:
        for name, records in self._ticks.items():
            newest_first = sorted(records.values(), key=lambda record: record.at, reverse=True)
            assert self._run(self._stage.store.ticks(name, None, EVERYTHING)) == newest_first
        jobs = [(job.schedule, job.tick_at) for job in self._run(self._stage.all_jobs())]
        assert (
            len(jobs)
            == len(set(jobs))
            == sum(bool(one.job) for ticks in self._ticks.values() for one in ticks.values())
        )

    @invariant()
    def no_tick_silent(self) -> None:
        for name, schedule in self._schedules.items():
            at = START
            while schedule.next_tick_at is not None and at < schedule.next_tick_at:
                assert at in self._ticks[name] or at == schedule.pending_tick_at, (name, at)
                at += SPAN

    @invariant()
    def never_early(self) -> None:
        for name in NAMES:
            assert all(
                one.at <= self._clock.now() for one in self._run(self._stage.store.ticks(name, None, EVERYTHING))
            )

    @invariant()
    def what_is_due_agrees(self) -> None:
        dues = self._run(self._stage.store.due_schedules(self._clock.now(), 9))
        expected = sorted((at, name) for name, one in self._schedules.items() if (at := self._due_at(one)) is not None)
        assert [due.schedule.name for due in dues] == [name for _, name in expected]
        for due in dues:
            name = due.schedule.name
            assert due.active == tuple(job.id for job in self._active[name])
            assert due.completed_at == self._completed_at.get(name)

    def _due_at(self, schedule: Schedule) -> datetime | None:
        reasons = []
        if schedule.next_tick_at is not None and schedule.next_tick_at < self._clock.now():
            reasons.append(schedule.next_tick_at)
        if schedule.pending_tick_at is not None and not self._active[schedule.name]:
            reasons.append(schedule.pending_tick_at)
        return None if schedule.paused else min(reasons, default=None)

    def _apply(self, read: Schedule, move: TickMove) -> None:
        (answer,) = self._run(apply(self._stage, move))
        expected = self._expected(read, move)
        assert (answer.applied, [job.id for job in answer.jobs]) == expected

    def _expected(self, read: Schedule, move: TickMove) -> tuple[bool, list[str]]:
        """What the store should answer; keeps what it should keep."""
        current, now = self._schedules[read.name], self._clock.now()
        same = _guarded(read) == _guarded(current) and not current.paused
        if not same or any(record.at > now for record in move.records):
            return False, []
        last = max([record.at for record in move.records] + [current.last_tick_at or START])
        self._schedules[read.name] = replace(
            current,
            next_tick_at=move.decision.next_tick_at,
            pending_tick_at=move.decision.pending_tick_at,
            last_tick_at=last,
        )
        return True, self._kept(read.name, move)

    def _kept(self, name: str, move: TickMove) -> list[str]:
        """The jobs of ticks that had none."""
        fresh = [
            one for one in move.records if (old := self._ticks[name].get(one.at)) is None or (one.job and not old.job)
        ]
        self._ticks[name] |= {record.at: record for record in fresh}
        jobs = [job for job in move.jobs if job.id in {record.job for record in fresh}]
        self._active[name] += jobs
        return [job.id for job in jobs]

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)


def tick_machine(new_store: NewStore) -> type[TickMachine]:
    """A state machine over new stores of one backend; run its `TestCase`."""
    return type("BackendTickMachine", (TickMachine,), {"new_store": staticmethod(new_store)})


def _guarded(schedule: Schedule) -> tuple[object, ...]:
    return schedule.version, schedule.next_tick_at, schedule.pending_tick_at
