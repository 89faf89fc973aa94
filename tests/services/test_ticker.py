"""What becomes of ticks: missed ones, overlapping ones, and those that several schedulers want at once."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.scheduler_api import AFTER_TICK_COMMIT
from penstock.model.errors import StoreUnavailable
from penstock.model.job import Claim
from penstock.model.lifecycle import State
from penstock.model.schedule import Cron, Decision, Ticked, TickMove, Verdict
from penstock.model.wire.schedules import Agenda
from penstock.model.workers import JobType
from penstock.objects.folder import FolderObjects
from penstock.scheduler.tick_plan import plan
from penstock.store import Capabilities
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import claim, claim_one, dispatcher, join, success
from tests.services.schedule_steps import SimulatedTicker, create, history, job_of, jobs_of, ticks_of, told

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
async def _types(engine: Engine) -> None:
    await join(engine)


@pytest.fixture
def simulated(engine: Engine, clock: SimulatedClock) -> SimulatedTicker:
    return SimulatedTicker(engine, clock)


async def settle(engine: Engine, claimed: Claim) -> None:
    assert await engine.worker_api.settle([success(claimed)]) == []


async def test_a_store_of_small_moves_is_asked_in_as_many_as_it_takes(
    engine: Engine, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[int] = []
    tick = SqliteStore.tick

    async def count(self: SqliteStore, asked: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        moves.extend(len(move.records) for move in asked)
        return await tick(self, asked, ticket_for)

    monkeypatch.setattr(SqliteStore, "tick", count)
    monkeypatch.setattr(SqliteStore, "capabilities", Capabilities(tick_verdicts=4))
    await create(engine, misfire="run_all", misfire_cap=100)
    clock.advance(106 * SECOND)
    await SimulatedTicker(engine, clock).settles()
    assert moves == [4, 4, 2]
    assert len({record.at for record in await history(engine)}) == 10


class TestMisfire:
    """The system is down over ten ticks of ten seconds."""

    async def after_ten_missed(self, engine: Engine, clock: SimulatedClock, **said: object) -> list[str]:
        await create(engine, misfire_grace_seconds=5, **said)  # type: ignore[arg-type]
        clock.advance(106 * SECOND)
        await SimulatedTicker(engine, clock).settles()
        records = await history(engine)
        assert len({record.at for record in records}) == 10
        return ["job" if record.job else str(record.skipped) for record in records]

    async def test_skip_runs_none_of_them(self, engine: Engine, clock: SimulatedClock) -> None:
        became = await self.after_ten_missed(engine, clock, misfire="skip")
        assert all("missed by" in one for one in became)
        assert await claim(engine) == []

    async def test_run_once_runs_the_latest(self, engine: Engine, clock: SimulatedClock) -> None:
        *skipped, last = await self.after_ten_missed(engine, clock, misfire="run_once")
        assert last == "job"
        assert all("coalesced" in one for one in skipped)

    async def test_run_all_runs_each_up_to_the_cap(self, engine: Engine, clock: SimulatedClock) -> None:
        became = await self.after_ten_missed(engine, clock, misfire="run_all", misfire_cap=4)
        assert became[6:] == ["job"] * 4
        assert all("cap of 4" in one for one in became[:6])
        assert len(await claim(engine)) == 4

    async def test_within_the_grace_nothing_is_missed(self, engine: Engine, clock: SimulatedClock) -> None:
        await create(engine, misfire="skip", misfire_grace_seconds=5)
        clock.advance(14 * SECOND)
        await SimulatedTicker(engine, clock).settles()
        assert told(await history(engine)) == {"job": 1}


class TestOverlap:
    """Each tick comes while the job of the one before it runs."""

    async def test_allow_runs_them_beside_each_other(self, engine: Engine, simulated: SimulatedTicker) -> None:
        await create(engine)
        await simulated.runs(35 * SECOND)
        assert len(await claim(engine)) == 3

    async def test_skip_waits_for_the_end(self, engine: Engine, simulated: SimulatedTicker) -> None:
        await create(engine, overlap="skip")
        await simulated.runs(15 * SECOND)
        running = await claim_one(engine)
        await simulated.runs(10 * SECOND)
        await settle(engine, running)
        await simulated.runs(10 * SECOND)
        assert [record.job is not None for record in await history(engine)] == [True, False, True]

    async def test_a_job_that_ends_within_the_slot_is_not_held_against_the_tick(
        self, engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker
    ) -> None:
        await create(engine, overlap="skip")
        await simulated.runs(15 * SECOND)
        running = await claim_one(engine)
        await simulated.runs(timedelta(seconds=4.9))
        await settle(engine, running)
        await simulated.runs(timedelta(seconds=0.1))
        assert told(await history(engine)) == {"job": 2}

    async def test_queue_one_runs_one_more_the_moment_the_job_ends(
        self, engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker
    ) -> None:
        await create(engine, overlap="queue_one")
        await simulated.runs(15 * SECOND)
        running = await claim_one(engine)
        await simulated.runs(20 * SECOND)
        assert await claim(engine) == []
        await settle(engine, running)
        await simulated.settles()
        queued = await claim_one(engine)
        first, second, third = await history(engine)
        assert (first.job, second.job) == (running.job, queued.job)
        assert third.skipped == "one is waiting already"
        assert (await engine.jobs.get(queued.job)).created_at == clock.now()

    async def test_cancel_previous_makes_room(self, engine: Engine, simulated: SimulatedTicker) -> None:
        await create(engine, overlap="cancel_previous")
        await simulated.runs(15 * SECOND)
        waiting = job_of((await history(engine))[0])
        await simulated.runs(10 * SECOND)
        assert (await engine.jobs.get(waiting)).state is State.CANCELLED
        running = await claim_one(engine)
        await simulated.runs(10 * SECOND)
        assert (await engine.jobs.get(running.job)).cancel_requested_at is not None

    async def test_the_previous_job_yields_though_the_scheduler_dies_right_after_the_tick(
        self, engine: Engine, simulated: SimulatedTicker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await create(engine, overlap="cancel_previous")
        await simulated.runs(15 * SECOND)
        running = await claim_one(engine)

        def die(place: str) -> None:
            raise KeyboardInterrupt(place)

        monkeypatch.setattr("penstock.engine.scheduler_api.failpoint", die)
        with pytest.raises(KeyboardInterrupt, match=AFTER_TICK_COMMIT):
            await simulated.runs(10 * SECOND)
        assert len(await history(engine)) == 2
        assert (await engine.jobs.get(running.job)).cancel_requested_at is not None

    async def test_after_completion_counts_from_the_end(
        self, engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker
    ) -> None:
        await create(engine, after_completion=True)
        await simulated.runs(25 * SECOND)
        running = await claim_one(engine)
        await settle(engine, running)
        ended = clock.now()
        await simulated.runs(20 * SECOND)
        _, second = await jobs_of(engine)
        assert second.created_at == ended + 10 * SECOND


async def test_jitter_delays_each_tick_by_its_own_span(engine: Engine, simulated: SimulatedTicker) -> None:
    await create(engine, jitter_seconds=5)
    await simulated.runs(100 * SECOND)
    late = [job.created_at - job.tick_at for job in await jobs_of(engine) if job.tick_at]
    assert len(set(late)) > 3
    assert all(timedelta(0) <= span <= 5 * SECOND for span in late)


async def test_a_tick_whose_job_cannot_be_made_says_so_and_time_goes_on(
    engine: Engine, simulated: SimulatedTicker
) -> None:
    await create(engine, params={"a": 1})
    schema = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
    await engine.catalog.declare([JobType(name="other", queue="other", params_schema=schema)])
    await simulated.runs(25 * SECOND)
    records = await history(engine)
    assert len(records) == 2
    assert all(str(record.skipped).startswith("invalid_params") for record in records)


async def test_a_schedule_that_cannot_be_understood_any_more_holds_up_no_other(
    engine: Engine, simulated: SimulatedTicker, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = await create(engine), await create(engine, "bad", cron="* * * * *")
    await engine.store.put_schedule(replace(bad, when=Cron("* * * * *", "Gone/Zone")), bad.version)
    await simulated.runs(65 * SECOND)
    assert told(await history(engine, good.name)) == {"job": 6}
    assert await history(engine, "bad") == []
    assert "schedule bad cannot be planned" in caplog.text


async def test_a_change_that_sets_the_course_back_doubles_nothing(
    engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker
) -> None:
    """As when a client reads, a scheduler ticks, and the client writes what it has read."""
    before = await create(engine, overlap="cancel_previous")
    await simulated.runs(11 * SECOND)
    (job,) = await jobs_of(engine)
    assert await engine.store.put_schedule(replace(before, priority=9), before.version) is not None
    engine.signals.schedules.publish(None)
    await simulated.settles()
    assert [record.job for record in await history(engine)] == [job.id]
    assert (await engine.jobs.get(job.id)).state is State.QUEUED


async def test_many_missed_ticks_of_many_schedules_are_caught_up_in_parts(
    engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker
) -> None:
    for number in range(5):
        await create(engine, f"s{number}", interval=1, misfire="run_all", misfire_cap=1000, misfire_grace_seconds=0)
    clock.advance(1500 * SECOND)
    await simulated.settles()
    for number in range(5):
        records = await history(engine, f"s{number}")
        assert (len(records), len(set(ticks_of(records)))) == (1500, 1500)
        assert told(records)["job"] == 1001


class Rivals:
    """Two engines over one store, as two servers would be."""

    def __init__(self, engine: Engine, other: Engine, clock: SimulatedClock) -> None:
        self.watchmen = [SimulatedTicker(one, clock) for one in (engine, other, engine, other)]


@pytest.fixture
def other(engine: Engine, tmp_path: Path, clock: SimulatedClock, settings: Settings) -> Engine:
    objects = FolderObjects(tmp_path / "objects", clock=clock)
    return Engine(engine.store, MemoryBroker(), objects, settings, clock, random.Random(8))


async def test_no_tick_twice_and_no_tick_silent_whoever_is_faster(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    """Safety: no tick twice, no tick silent, never early."""
    start, rivals = clock.now(), Rivals(engine, other, clock)
    for number in range(5):
        await create(engine, f"s{number}", interval=1, overlap=["allow", "skip", "queue_one"][number % 3])
    for _ in range(40):
        await asyncio.gather(*(simulated.step() for simulated in rivals.watchmen))
        clock.advance(timedelta(seconds=0.25))
        for claimed in await claim(engine):
            await settle(engine, claimed)
    await asyncio.gather(*(simulated.settles() for simulated in rivals.watchmen))
    for number in range(5):
        records = await history(engine, f"s{number}")
        pending = (await engine.schedules.get(f"s{number}")).pending_tick_at
        seen = sorted([*ticks_of(records), *([pending] if pending else [])])
        assert seen == [start + n * SECOND for n in range(1, len(seen) + 1)]
        assert len(seen) in (9, 10)
        jobs = [record.job for record in records if record.job]
        assert len(set(jobs)) == len(jobs) == len(await jobs_of(engine, f"s{number}"))
        assert all(job.tick_at and job.created_at >= job.tick_at for job in await jobs_of(engine, f"s{number}"))


async def test_of_decisions_from_the_same_reading_one_is_applied(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    """Safety: no tick twice. One says a job, the other a skip and a later course; never both."""
    for number in range(20):
        await create(engine, f"s{number}", interval=1)
    clock.advance(timedelta(seconds=1.5))
    agenda = await engine.ticks.due(SECOND, 100)
    ours = [decision for due in agenda.due if (decision := plan(due, agenda.now)) is not None]
    theirs = [
        replace(one, verdicts=(Verdict(one.verdicts[0].at, "theirs"),), next_tick_at=clock.now() + 9 * SECOND)
        for one in ours
    ]
    won, lost = await asyncio.gather(engine.ticks.apply(ours), other.ticks.apply(theirs))
    assert [sum(pair) for pair in zip(won, lost, strict=True)] == [1] * 20
    assert all([len(await history(engine, one.name)) == 1 for one in ours])


async def test_a_tick_whose_write_failed_is_tried_again_at_once(engine: Engine, clock: SimulatedClock) -> None:
    class FailsOnce(Flaky):
        def _fail(self) -> None:
            pass

        async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
            self.apply = self._ticks.apply  # type: ignore[method-assign]
            raise StoreUnavailable("once")

    await create(engine)
    simulated = SimulatedTicker(engine, clock, FailsOnce(engine, random.Random()))
    with pytest.raises(StoreUnavailable):
        await simulated.runs(11 * SECOND)
    await simulated.ticker.step()
    assert told(await history(engine)) == {"job": 1}


class Flaky:
    """A SchedulerApi whose answers get lost now and then, after it has done what it was asked, or before."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self._ticks = engine.ticks
        self._rng = rng

    async def due(self, slot: timedelta, limit: int, wait: timedelta = timedelta(0), seen: str | None = None) -> Agenda:
        self._fail()
        return await self._ticks.due(slot, limit, wait, seen)

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        self._fail()
        applied = await self._ticks.apply(decisions)
        self._fail()
        return applied

    async def close(self) -> None: ...

    def _fail(self) -> None:
        if self._rng.random() < 0.3:
            raise StoreUnavailable("lost")


async def test_a_scheduler_whose_calls_fail_misses_no_tick(engine: Engine, clock: SimulatedClock) -> None:
    start = clock.now()
    await create(engine, interval=1)
    simulated = SimulatedTicker(engine, clock, Flaky(engine, random.Random(3)))
    for _ in range(200):
        with suppress(StoreUnavailable):
            await simulated.step()
        clock.advance(timedelta(seconds=0.1))
    records = await history(engine)
    assert ticks_of(records) == [start + n * SECOND for n in range(1, len(records) + 1)]
    assert len(records) >= 18
    assert told(records) == {"job": len(records)}


class SkewedClock(SimulatedClock):
    """Hours off, but as fast as the other."""

    def __init__(self, true: SimulatedClock, skew: timedelta) -> None:
        super().__init__(true.now() + skew)
        self._true, self._skew = true, skew

    def now(self) -> datetime:
        return self._true.now() + self._skew

    def monotonic(self) -> float:
        return self._true.monotonic() + 1e6

    def advance(self, span: timedelta) -> None:
        self._true.advance(span)


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_scheduler_whose_clock_is_hours_off_is_neither_early_nor_late(
    engine: Engine, clock: SimulatedClock, hours: int
) -> None:
    await create(engine)
    await SimulatedTicker(engine, SkewedClock(clock, timedelta(hours=hours))).runs(35 * SECOND)
    jobs = await jobs_of(engine)
    assert len(jobs) == 3
    assert all(job.created_at == job.tick_at for job in jobs)


async def test_a_scheduler_that_was_stopped_for_a_minute_doubles_nothing(
    engine: Engine, other: Engine, clock: SimulatedClock
) -> None:
    await create(engine, interval=1)
    stopped, going = SimulatedTicker(engine, clock), SimulatedTicker(other, clock)
    await stopped.runs(timedelta(seconds=0.5))
    await going.runs(60 * SECOND)
    before = await history(engine)
    await stopped.ticker.step()
    assert await history(engine) == before
    assert told(before) == {"job": 60}


async def test_a_job_committed_but_not_published_is_dispatched_later(
    engine: Engine, clock: SimulatedClock, simulated: SimulatedTicker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        """The process is gone."""

    def die(place: str) -> None:
        raise Died(place)

    await create(engine)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.engine.scheduler_api.failpoint", die)
        with pytest.raises(Died):
            await simulated.runs(11 * SECOND)
    assert await claim(engine) == []
    assert isinstance(engine.broker, MemoryBroker)
    engine.broker.lose()
    await dispatcher(engine).step()
    assert [claimed.job for claimed in await claim(engine)] == [job.id for job in await jobs_of(engine)]


async def test_the_store_is_the_same_after_it_was_opened_again(
    engine: Engine, tmp_path: Path, clock: SimulatedClock, simulated: SimulatedTicker, settings: Settings
) -> None:
    made = await create(engine)
    await simulated.runs(15 * SECOND)
    await engine.close()
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    again = Engine(store, MemoryBroker(), FolderObjects(tmp_path / "objects", clock), settings, clock, random.Random(9))
    await SimulatedTicker(again, clock).runs(10 * SECOND)
    assert made.next_tick_at is not None
    assert ticks_of(await history(again)) == [made.next_tick_at, made.next_tick_at + 10 * SECOND]
    await again.close()
