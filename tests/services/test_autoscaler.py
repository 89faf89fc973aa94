"""The autoscaler over a real engine: workers come with work and go without it, and no job is interrupted."""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.autoscaler.backends import Condition, LaunchSpec
from penstock.autoscaler.loop import role_of
from penstock.autoscaler.snapshot import observe
from penstock.broker.memory import MemoryBroker
from penstock.config import BrokerSettings, FleetSettings, Settings
from penstock.engine import Engine
from penstock.engine.leader import HELD_FOR
from penstock.model.errors import Invalid, StoreUnavailable
from penstock.model.fleets import Fleet
from penstock.model.job import JobFilter
from penstock.model.lifecycle import State
from penstock.model.notices import Notice
from penstock.model.wire.fleets import FleetChange
from penstock.store import Capabilities
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ADD, OTHER, dispatcher, submit
from tests.services.fake_fleets import APP, FakeFleets, World
from tests.services.schedule_steps import create

SECOND = timedelta(seconds=1)
EVERYTHING = JobFilter()


@pytest.fixture
def settings() -> Settings:
    return Settings(fleet=FleetSettings(max=5))


@pytest.fixture
async def engine(engine: Engine) -> Engine:
    await engine.catalog.declare([ADD, OTHER])
    return engine


@pytest.fixture
def world(engine: Engine, clock: SimulatedClock) -> World:
    return World(engine, clock, FakeFleets(clock), [ADD, OTHER])


async def burst(world: World, jobs: int, type: str = "add") -> None:
    for _ in range(jobs):
        await submit(world.engine, type)


async def attempts(world: World) -> set[int]:
    """How often each job was tried."""
    page = await world.engine.store.page(EVERYTHING, None, 5000)
    return {job.attempt for job in page.jobs}


async def test_from_zero_to_many_and_back_to_zero(world: World) -> None:
    await world.run(3)
    assert world.size() == 0
    await burst(world, 60)
    await world.run(15)
    assert await world.jobs() == {State.SUCCEEDED: 60}
    assert 2 <= world.fleets.most <= 5
    await world.run(30)
    assert world.size() == 0
    assert await attempts(world) == {1}
    shown = await world.engine.fleets.get("default")
    assert (shown.desired, shown.workers["idle"], shown.started, shown.stopped) == (0, 0, 5, 5)
    assert [decision.start for decision in shown.decisions if decision.start][-1] == 1
    assert all(decision.reason for decision in shown.decisions)


async def test_a_shard_that_counts_up_to_a_number_says_so_once_it_has_as_many_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteStore, "capabilities", Capabilities(counts_up_to=3))
    await burst(world, 2)
    assert (await observe(world.engine, SECOND)).uncounted == ""
    await burst(world, 1)
    assert (await observe(world.engine, SECOND)).uncounted == "shard 0 counts at most 3 jobs that have not ended"


async def no_runs(self: SqliteStore) -> dict[str, int]:
    return {}


@pytest.mark.parametrize("prompt", [True, False])
async def test_where_claims_show_late_a_worker_that_reports_jobs_is_not_asked_to_stop(
    world: World, monkeypatch: pytest.MonkeyPatch, *, prompt: bool
) -> None:
    """The store does not show that it runs any; one that shows every claim at once is believed."""
    world.fleets.service = timedelta(hours=1)
    monkeypatch.setattr(SqliteStore, "running_by_worker", no_runs)
    monkeypatch.setattr(SqliteStore, "capabilities", Capabilities(prompt_lines=prompt))
    await world.engine.fleets.scale("default", 1)
    await burst(world, 1)
    await world.run(10)
    await world.engine.fleets.scale("default", 0)
    await world.run(10)
    assert bool(world.fleets.stops) == prompt


async def test_a_fleet_that_something_else_scales_is_only_watched(world: World) -> None:
    world.fleets.external = 2
    await burst(world, 60)
    await world.run(10)
    assert (world.size(), world.fleets.orders) == (0, [])
    shown = await world.engine.fleets.get("default")
    assert (shown.desired, shown.started, shown.reason) == (2, 0, "scaled elsewhere: 2 wanted, 0 here; only watched")
    world.fleets.down = True
    await world.run(3)
    assert "cannot be seen now" in ((await world.engine.fleets.get("default")).reason or "")


async def test_the_first_worker_is_started_at_once(world: World) -> None:
    (autoscaler,) = world.autoscalers
    await autoscaler.step()
    autoscaler.wake.clear()
    world.clock.advance(timedelta(milliseconds=150))
    await burst(world, 1)
    assert autoscaler.wake.is_set()
    await autoscaler.step()
    assert world.size() == 1
    autoscaler.wake.clear()
    await burst(world, 1)
    assert not autoscaler.wake.is_set(), "whoever has workers is looked at soon enough"


async def test_a_job_says_that_workers_are_on_the_way_as_long_as_an_autoscaler_says_so(world: World) -> None:
    job = await submit(world.engine)

    async def why() -> str | None:
        return (await world.engine.jobs.item(await world.engine.jobs.get(job.id))).reason

    assert await why() == "no worker runs this type"
    await world.autoscalers[0].step()
    assert await why() == "scaling up"
    world.clock.advance(timedelta(minutes=1))
    assert await why() == "no worker runs this type, and no autoscaler acts for it"
    since = world.clock.now() - timedelta(minutes=1)
    world.clock.advance(timedelta(minutes=1))
    told = f"no worker has run this type since {since:%Y-%m-%dT%H:%M:%SZ}, and no autoscaler acts for it"
    assert await why() == told


async def test_jobs_of_a_type_that_no_worker_has_any_more_do_not_hold_a_fleet(world: World) -> None:
    gone = replace(OTHER, name="gone", queue="gone")
    await world.engine.catalog.declare([gone])
    since = world.clock.now()
    jobs = [await submit(world.engine, "gone", {}) for _ in range(100)]
    await world.run(60)
    assert (world.size(), world.fleets.most) == (0, 1)
    started = len(world.fleets.workers)
    await world.run(120)
    assert len(world.fleets.workers) == started
    await burst(world, 5)
    await world.run(1)
    assert world.size() > 0
    item = await world.engine.jobs.item(await world.engine.jobs.get(jobs[0].id))
    assert item.reason == f"no worker has run this type since {since:%Y-%m-%dT%H:%M:%SZ}"
    await world.run(30)
    assert await world.jobs() == {State.QUEUED: 100, State.SUCCEEDED: 5}
    world.types = [*world.types, gone]
    await world.engine.catalog.declare([gone])
    await world.run(60)
    assert await world.jobs() == {State.SUCCEEDED: 105}


async def test_jobs_that_only_newer_code_takes_do_not_hold_a_fleet_of_older_workers(world: World) -> None:
    newer = replace(ADD, params_schema={"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]})
    await burst(world, 1)
    await world.run(30)
    await world.engine.catalog.declare([newer])
    await submit(world.engine, "add", {"c": 1})
    world.fleets.misfits = b'"c"'
    await world.run(60)
    started = len(world.fleets.workers)
    await world.run(60)
    assert (world.size(), len(world.fleets.workers)) == (0, started)
    assert await world.jobs() == {State.SUCCEEDED: 1, State.QUEUED: 1}


async def test_looks_that_come_too_fast_are_put_off(world: World) -> None:
    (autoscaler,) = world.autoscalers
    assert await autoscaler.step() == SECOND
    world.clock.advance(timedelta(milliseconds=40))
    assert await autoscaler.step() == timedelta(milliseconds=60)


async def test_work_in_another_process_wakes_the_autoscaler(
    engine: Engine, clock: SimulatedClock, settings: Settings
) -> None:
    shared = replace(settings, broker=BrokerSettings(url="redis://shared"))
    here, there = (
        Engine(engine.store, engine.broker, engine.objects, shared, clock, random.Random(n)) for n in range(2)
    )
    listening = [asyncio.ensure_future(one.signals.listen()) for one in (here, there)]
    world = World(here, clock, FakeFleets(clock), [ADD, OTHER])
    (autoscaler,) = world.autoscalers
    await autoscaler.step()
    await submit(there)
    for _ in range(4):
        await asyncio.sleep(0)
        clock.advance(timedelta(milliseconds=50))
    async with asyncio.timeout(20):
        await autoscaler.wake.wait()
    for task in listening:
        task.cancel()


async def test_a_busy_worker_is_never_asked_to_stop(world: World) -> None:
    rng = random.Random(3)
    submitted = 0
    for _ in range(120):
        jobs = rng.choice((0, 0, 0, 1, 3, 12))
        submitted += jobs
        await burst(world, jobs)
        world.fleets.service = timedelta(seconds=rng.choice((0.5, 2, 7)))
        await world.run(rng.choice((0.5, 1, 3)))
    await world.run(60)
    assert await world.jobs() == {State.SUCCEEDED: submitted}
    assert len(world.fleets.stops) > 5
    assert not any(worker.asked_while_busy for worker in world.fleets.workers.values())
    assert {patience for _, patience in world.fleets.stops} == {None}
    assert await attempts(world) == {1}
    assert world.fleets.most <= 5


async def test_who_became_busy_since_the_look_is_spared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.engine.fleets.scale("default", 2)
    await world.run(6)
    shard = world.engine.store.shards()[0]
    told = shard.running_by_worker

    async def holders() -> dict[str, int]:
        monkeypatch.setattr(shard, "running_by_worker", busy_now)
        return await told()

    async def busy_now() -> dict[str, int]:
        return {"default-0": 1}

    await world.engine.fleets.scale("default", 0)
    monkeypatch.setattr(shard, "running_by_worker", holders)
    world.clock.advance(SECOND)
    await world.autoscalers[0].step()
    assert [name for name, _ in world.fleets.stops] == ["default-1"]


async def test_those_idle_for_longest_go_first(world: World) -> None:
    await world.engine.fleets.scale("default", 3)
    await world.run(6)
    world.fleets.service = timedelta(seconds=3)
    await burst(world, 2)
    await world.run(1)
    (busy,) = (worker for worker in world.fleets.alive() if worker.jobs)
    await world.run(6)
    await world.engine.fleets.scale("default", 1)
    await world.run(3)
    assert [worker.name for worker in world.fleets.alive()] == [busy.name]


# -- one acts


async def test_of_two_autoscalers_one_acts_and_the_other_takes_over(world: World) -> None:
    first, second = world.autoscalers[0], world.autoscaler("b")
    world.autoscalers.append(second)
    await burst(world, 4)
    await world.run(10)
    assert (first.acts, second.acts) == (True, False)
    started = len(world.fleets.workers)
    world.autoscalers = [second]
    await world.run(HELD_FOR.total_seconds() - 3.5)
    assert not second.acts
    await world.run(6)
    assert second.acts
    await burst(world, 4)
    await world.run(10)
    assert await world.jobs() == {State.SUCCEEDED: 8}
    shown = await world.engine.fleets.get("default")
    assert shown.autoscaler == "b"
    assert shown.started == len(world.fleets.workers) >= started
    await world.run(30)
    assert world.size() == 0


async def test_who_acts_again_goes_on_from_what_the_other_has_done(world: World) -> None:
    first, second = world.autoscalers[0], world.autoscaler("b")
    await world.engine.fleets.scale("default", 1)
    await world.run(2)
    world.autoscalers = [second]
    await world.engine.fleets.scale("default", 3)
    await world.run(HELD_FOR.total_seconds() + 4)
    assert (second.acts, world.size()) == (True, 3)
    await second.close()
    world.autoscalers = [first]
    await world.engine.fleets.scale("default", 4)
    await world.run(4)
    assert first.acts
    shown = await world.engine.fleets.get("default")
    assert (shown.autoscaler, shown.started, len(world.fleets.workers)) == ("a", 4, 4)


async def test_who_closes_lets_another_act_at_once(world: World) -> None:
    second = world.autoscaler("b")
    await burst(world, 2)
    await world.run(4)
    running = world.size()
    await world.autoscalers[0].close()
    world.autoscalers = [second]
    await world.run(0.5)
    assert second.acts
    assert world.size() == running, "workers are found again, not started twice"
    await burst(world, 1)
    assert not world.autoscaler("c").wake.is_set()


async def test_after_a_long_look_it_asks_whether_it_is_still_the_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (autoscaler,) = world.autoscalers
    await autoscaler.step()
    await burst(world, 1)
    members = world.fleets.members

    async def slow(fleet: str) -> object:
        world.clock.advance(HELD_FOR + SECOND)
        assert await world.engine.store.acquire_role(role_of(APP), "b", HELD_FOR) is not None
        return await members(fleet)

    monkeypatch.setattr(world.fleets, "members", slow)
    world.clock.advance(SECOND)
    await autoscaler.step()
    assert (world.fleets.orders, autoscaler.acts) == ([], False)


async def test_the_role_is_kept_while_starting_workers_takes_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.autoscalers[0], world.autoscaler("b")
    start, asked, pulled = world.fleets.start, asyncio.Event(), asyncio.Event()

    async def slow(order: LaunchSpec, count: int) -> list[str]:
        asked.set()
        await pulled.wait()
        return await start(order, count)

    monkeypatch.setattr(world.fleets, "start", slow)
    await burst(world, 1)
    step = asyncio.ensure_future(first.step())
    await asyncio.wait_for(asked.wait(), 5)
    for _ in range(10):
        world.clock.advance(2 * SECOND)
        await second.step()
    assert (first.acts, second.acts) == (True, False)
    pulled.set()
    await step
    assert world.size() == 1


async def test_who_loses_the_role_while_it_starts_workers_starts_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (autoscaler,) = world.autoscalers
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(order: LaunchSpec, count: int) -> list[str]:
        asked.set()
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    monkeypatch.setattr(world.fleets, "start", slow)
    await burst(world, 1)
    step = asyncio.ensure_future(autoscaler.step())
    await asyncio.wait_for(asked.wait(), 5)
    world.clock.advance(HELD_FOR)
    assert await world.engine.store.acquire_role(role_of(APP), "b", HELD_FOR) is not None
    await asyncio.wait_for(step, 5)
    assert (cancelled.is_set(), autoscaler.acts) == (True, False)


async def test_two_hosts_with_workers_of_their_own_never_have_more_than_the_fleet_may(
    engine: Engine, clock: SimulatedClock
) -> None:
    here, there = (FakeFleets(clock, service=20, host=host) for host in ("a", "b"))
    world = World(engine, clock, here, [ADD, OTHER])
    world.hosts.append(there)
    first, second = world.autoscalers[0], world.autoscaler("b", there)
    await burst(world, 100)
    await world.run(10)
    assert (len(here.alive()), len(there.alive())) == (5, 0)
    world.autoscalers = [second]
    await world.run(HELD_FOR.total_seconds() + 5)
    assert second.acts
    assert (len(here.alive()), len(there.alive())) == (5, 0), "the frozen autoscaler's workers go on, and count"
    world.autoscalers = [first, second]
    await world.run(30)
    assert (len(here.alive()), len(there.alive())) == (0, 5), "who lost the role lets its workers go"
    assert (first.acts, second.acts) == (False, True)
    await world.run(300)
    assert await world.jobs() == {State.SUCCEEDED: 100}
    assert (len(here.alive()), len(there.alive()), await attempts(world)) == (0, 0, {1})


# -- by hand


async def test_a_paused_fleet_is_left_as_it_is(world: World) -> None:
    await world.engine.fleets.pause("default", paused=True)
    await burst(world, 3)
    await world.run(5)
    assert world.size() == 0
    assert (await world.engine.fleets.get("default")).reason == "paused: left as it is"
    await world.engine.fleets.pause("default", paused=False)
    await world.run(1)
    assert world.size() == 1
    await world.engine.fleets.pause("default", paused=True)
    await world.run(60)
    assert (world.size(), await world.jobs()) == (1, {State.SUCCEEDED: 3})


async def test_a_fleet_scaled_by_hand_has_that_many_until_it_is_left_to_its_policy(world: World) -> None:
    await world.engine.fleets.scale("default", 3)
    await world.run(40)
    assert world.size() == 3
    await world.engine.fleets.scale("default", 1)
    await world.run(4)
    assert world.size() == 1
    await world.engine.fleets.scale("default", None)
    await world.run(40)
    assert world.size() == 0
    with pytest.raises(Invalid, match="above its max"):
        await world.engine.fleets.scale("default", 6)


async def test_what_is_set_at_run_time_counts_at_once_and_may_be_reset(world: World) -> None:
    await world.engine.fleets.change("default", FleetChange(min=2))
    await world.run(4)
    assert world.size() == 2
    with pytest.raises(Invalid, match="above max"):
        await world.engine.fleets.change("default", FleetChange(min=6))
    changed = await world.engine.fleets.change("default", FleetChange(reset=True, max=3))
    assert (changed.fleet.min, changed.fleet.max) == (0, 3)
    await world.run(40)
    assert world.size() == 0


async def test_forced_from_zero_to_many_and_back_no_job_is_interrupted(world: World) -> None:
    world.fleets.service = timedelta(seconds=3)
    for count in (5, 0, 5, 0, 5, 0, 5, 0):
        await burst(world, 6)
        await world.engine.fleets.scale("default", count)
        await world.run(5)
    await world.engine.fleets.scale("default", None)
    await world.run(60)
    assert await world.jobs() == {State.SUCCEEDED: 48}
    assert await attempts(world) == {1}
    assert not any(worker.asked_while_busy for worker in world.fleets.workers.values())


# -- what is seen


async def test_a_queue_never_sleeps_with_work_in_it_whatever_the_broker_lost(
    world: World, engine: Engine, clock: SimulatedClock, settings: Settings
) -> None:
    await world.run(1)
    await burst(world, 5)
    world.engine = Engine(engine.store, MemoryBroker(), engine.objects, settings, clock, random.Random(9))
    world.dispatcher = dispatcher(world.engine)
    world.autoscalers = [world.autoscaler("a")]
    await world.run(0.5)
    assert world.size() == 1
    await world.run(20)
    assert await world.jobs() == {State.SUCCEEDED: 5}


async def test_jobs_that_nobody_moved_on_though_they_are_due_count(world: World) -> None:
    await submit(world.engine, delay_seconds=120)
    await world.run(60, dispatching=False)
    assert world.fleets.orders == []
    world.clock.advance(timedelta(minutes=2))
    await world.run(0.5, dispatching=False)
    assert world.size() == 1
    assert await world.jobs() == {State.SCHEDULED: 1}


async def test_workers_are_up_before_jobs_fall_due(world: World) -> None:
    await burst(world, 1)
    await world.run(40)
    assert world.size() == 0
    await submit(world.engine, delay_seconds=30)
    await world.run(25)
    assert world.size() == 0
    await world.run(4.5)
    (worker,) = world.fleets.alive()
    assert worker.condition is Condition.RUNNING
    await world.run(2)
    assert (await world.jobs())[State.SUCCEEDED] == 2


async def test_workers_are_up_before_a_schedule_ticks(world: World) -> None:
    await burst(world, 1)
    await world.run(40)
    schedule = await create(world.engine, "often", interval=60)
    assert schedule.next_tick_at == world.clock.now() + SECOND * 20
    await world.run(14)
    assert world.size() == 0
    await world.run(5)
    assert world.size() == 1


async def test_jobs_of_a_paused_queue_start_nobody(world: World) -> None:
    await world.engine.queues.pause("sums", paused=True)
    await burst(world, 3)
    await submit(world.engine, delay_seconds=5)
    await world.run(5)
    assert world.size() == 0
    await world.engine.queues.pause("sums", paused=False)
    await world.run(2)
    assert world.size() > 0


async def test_what_cannot_be_seen_changes_nothing(world: World) -> None:
    await world.engine.fleets.scale("default", 2)
    await world.run(5)
    await world.engine.fleets.scale("default", None)
    world.fleets.down = True
    await world.run(30)
    shown = await world.engine.fleets.get("default")
    assert shown.latest is not None
    assert (shown.workers, shown.latest.reading.idle) == ({}, None)
    assert set(shown.latest.reading.unknown) >= {"starting", "idle", "busy", "draining"}
    assert "does not answer" in (shown.reason or "")
    world.fleets.down = False
    assert (world.size(), world.fleets.stops) == (2, [])
    await world.run(30)
    assert world.size() == 0


async def test_a_shard_that_does_not_answer_is_not_taken_for_empty(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.engine.fleets.scale("default", 1)
    await world.run(5)
    await world.engine.fleets.scale("default", None)

    async def silent() -> object:
        raise StoreUnavailable("shard 0 does not answer")

    monkeypatch.setattr(world.engine.store.shards()[0], "counts", silent)
    await world.run(50)
    assert world.size() == 1
    shown = await world.engine.fleets.get("default")
    assert shown.latest is not None
    assert shown.latest.reading.unknown["backlog"] == "shard 0 does not answer"
    monkeypatch.undo()
    await world.run(30)
    assert world.size() == 0


async def test_work_on_a_shard_that_answers_starts_workers_though_another_does_not(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await burst(world, 3)
    shard = world.engine.store.shards()[0]
    lost = await SqliteStore.open(tmp_path / "lost.db", clock=world.clock)
    await lost.close()
    monkeypatch.setattr(world.engine.store, "shards", lambda: (shard, lost))
    await world.autoscalers[0].step()
    assert world.size() == 1
    monkeypatch.undo()
    await world.run(8)
    world.fleets.stops.clear()
    monkeypatch.setattr(world.engine.store, "shards", lambda: (shard, lost))
    await world.run(50)
    assert (world.size() > 0, world.fleets.stops) == (True, [])


async def test_without_the_store_nothing_is_done_and_nothing_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> object:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(world.engine.store, "acquire_role", silent)
    assert await world.autoscalers[0].step() == SECOND
    await world.autoscalers[0].close()


# -- what goes wrong with workers


async def test_workers_that_end_at_once_are_started_ever_more_slowly(world: World) -> None:
    world.fleets.broken = True
    await burst(world, 3)
    await world.run(120)
    assert 4 <= len(world.fleets.orders) <= 9
    shown = await world.engine.fleets.get("default")
    assert "times in a row" in (shown.trouble or "")
    assert "ended with status 1 before it had joined" in (shown.trouble or "")
    world.fleets.broken = False
    await world.run(80)
    assert await world.jobs() == {State.SUCCEEDED: 3}
    await world.run(120)
    assert (await world.engine.fleets.get("default")).trouble is None


async def test_a_backend_that_cannot_start_is_not_asked_at_every_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def start(_: object, count: int) -> list[str]:
        asked.append(count)
        return []

    monkeypatch.setattr(world.fleets, "start", start)
    await burst(world, 3)
    await world.run(30)
    assert 3 <= len(asked) <= 7


async def test_a_worker_that_never_joins_is_ended_and_told(world: World) -> None:
    world.fleets.mute = True
    await burst(world, 1)
    await world.run(118)
    assert world.fleets.stops == []
    await world.run(10)
    assert world.fleets.stops[0] == ("default-0", timedelta(0))
    assert "default-0 did not join in time" in ((await world.engine.fleets.get("default")).trouble or "")


async def test_nobody_is_ended_for_silence_while_a_shard_is_silent_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fleets.mute = True
    await burst(world, 1)
    await world.run(5)
    fall = world.engine.store.shards()[0].due_before

    async def silent(*_: object) -> object:
        raise StoreUnavailable("shard 0 does not answer")

    monkeypatch.setattr(world.engine.store.shards()[0], "due_before", silent)
    await world.run(130)
    assert world.fleets.stops == []
    monkeypatch.setattr(world.engine.store.shards()[0], "due_before", fall)
    await world.run(1)
    assert [name for name, _ in world.fleets.stops] == ["default-0"]


async def test_a_worker_whose_row_is_gone_for_a_moment_is_kept(world: World) -> None:
    await world.engine.fleets.scale("default", 1)
    await world.run(150)
    await world.engine.worker_api.leave("default-0")
    world.clock.advance(SECOND)
    await world.autoscalers[0].step()
    await world.run(10)
    assert (world.fleets.stops, list(world.fleets.workers)) == ([], ["default-0"])


async def test_a_worker_that_was_killed_is_replaced_and_forgotten(world: World) -> None:
    await world.engine.fleets.scale("default", 2)
    await world.run(40)
    world.fleets.workers["default-0"].end(-9)
    await world.run(3)
    assert {worker.name for worker in world.fleets.alive()} == {"default-1", "default-2"}
    assert {worker.id for worker in await world.engine.queues.workers()} == {"default-1", "default-2"}


async def test_a_lost_worker_does_not_count_and_is_ended_after_a_while(world: World) -> None:
    await world.engine.fleets.scale("default", 1)
    await world.run(5)
    frozen = world.fleets.workers["default-0"]
    frozen.order = replace(frozen.order)
    world.fleets.alive = lambda fleet=None: [  # type: ignore[method-assign]
        worker
        for worker in world.fleets.workers.values()
        if worker is not frozen and worker.condition is not Condition.ENDED
    ]
    await world.run(30)
    assert set(world.fleets.workers) == {"default-0", "default-1"}
    assert (await world.engine.fleets.get("default")).workers["lost"] == 1
    assert world.fleets.stops == []
    await world.run(110)
    assert world.fleets.stops[0] == ("default-0", timedelta(0))


# -- which fleet


async def test_a_job_type_with_its_own_fleet_has_its_own_workers(world: World) -> None:
    other = replace(OTHER, fleet=Fleet(max=2, target_wait="1s"))
    world.types = [ADD, other]
    await world.engine.catalog.declare([other])
    await burst(world, 8)
    await burst(world, 8, "other")
    await world.run(25)
    assert await world.jobs() == {State.SUCCEEDED: 16}
    orders = {order.fleet: order for order, _ in world.fleets.orders}
    told = {"PENSTOCK_URL": "u", "PENSTOCK_WORKER_APP": APP}
    assert (orders["other"].queues, orders["other"].environment) == (("other",), told)
    assert orders["default"].queues is None
    assert orders["default"].environment["PENSTOCK_WORKER_EXCEPT_QUEUES"].split() == ["other"]
    for job in (await world.engine.store.page(EVERYTHING, None, 99)).jobs:
        assert (job.worker or "").startswith("other" if job.queue == "other" else "default")
    await world.run(30)
    assert world.size() == 0


async def test_a_fleet_that_is_declared_no_more_is_drained_and_forgotten(world: World) -> None:
    own = replace(world.engine.settings, fleets={"sums": {"min": 1}})
    engine = world.engine
    configured = Engine(engine.store, engine.broker, engine.objects, own, world.clock, random.Random(9))
    world.engine, world.autoscalers = configured, []
    world.autoscalers = [world.autoscaler("a")]
    await world.run(5)
    assert world.size("sums") == 1
    await world.autoscalers[0].close()
    world.engine = engine
    engine.catalog.forget()
    world.autoscalers = [world.autoscaler("b")]
    await world.run(8)
    assert world.size() == 0
    assert set(await engine.fleets.records()) == {"default"}


async def test_a_fleet_whose_queues_are_all_taken_has_no_workers(world: World) -> None:
    own = replace(world.engine.settings, fleets={"a": {"queues": ["sums"]}, "b": {"queues": ["sums"], "min": 1}})
    engine = world.engine
    world.engine = Engine(engine.store, engine.broker, engine.objects, own, world.clock, random.Random(9))
    world.autoscalers = [world.autoscaler("a")]
    await burst(world, 1)
    await world.run(2)
    assert (world.size("a"), world.size("b"), world.size("default")) == (1, 0, 0)
    assert (await world.engine.fleets.get("b")).faults == ("queue sums is served by fleet a already",)


# -- what is recorded


async def test_records_are_written_when_something_changed_and_else_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Notice] = []
    tell = world.engine.store.put_notices

    async def told(notices: list[Notice]) -> None:
        written.extend(one for one in notices if one.kind == "fleet_record")
        await tell(notices)

    monkeypatch.setattr(world.engine.store, "put_notices", told)
    await world.run(60)
    assert 5 <= len(written) <= 8
    written.clear()
    await burst(world, 30)
    await world.run(10)
    assert 3 <= len(written) <= 11
