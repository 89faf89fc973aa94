"""Schedules as their owners see them, on a clock that only moves when told."""

from datetime import timedelta

import msgspec
import pytest

from penstock.engine import Engine
from penstock.model.errors import Conflict, Invalid, InvalidParams, KeyConflict, NotFound, UnknownType
from penstock.model.lifecycle import State
from penstock.model.schedule import Every
from penstock.model.wire.schedules import PreviewRequest
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import claim, join, request, submit
from tests.services.schedule_steps import SimulatedTicker, change, create, history, jobs_of, told

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
async def _types(engine: Engine) -> None:
    await join(engine)


async def test_a_schedule_gives_one_job_at_each_tick_and_never_before(engine: Engine, clock: SimulatedClock) -> None:
    start = clock.now()
    await create(engine, tags=["t"], priority=7, timeout_seconds=5)
    await SimulatedTicker(engine, clock).runs(35 * SECOND)
    jobs = await jobs_of(engine)
    assert [job.tick_at for job in jobs] == [start + n * 10 * SECOND for n in (1, 2, 3)]
    assert all(job.created_at == job.tick_at for job in jobs)
    (one, *_) = jobs
    assert (one.schedule, one.interval, one.tags, one.priority) == ("s", 10 * SECOND, ("t",), 7)
    assert one.timeout == 5 * SECOND
    assert len(await claim(engine)) == 3


async def test_an_idle_ticker_sleeps(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine, interval=3600)
    assert await SimulatedTicker(engine, clock).runs(timedelta(minutes=50)) < 50 * 60 / 4


@pytest.mark.parametrize(
    ("said", "error", "field"),
    [
        ({"cron": "0 0 31 2 *"}, Invalid, "cron"),
        ({"cron": "@daily", "timezone": "Mars/Olympus"}, Invalid, "timezone"),
        ({"cron": "@daily", "interval": 10}, Invalid, "interval"),
        ({"interval": None}, Invalid, "interval"),
        ({"start_at": "2031-01-01T00:00:00Z", "end_at": "2030-06-01T00:00:00Z"}, Invalid, "end_at"),
        ({"timezone": "Europe/Berlin"}, Invalid, "timezone"),
        ({"cron": "@daily", "after_completion": True}, Invalid, "after_completion"),
        ({"type": "nobody"}, UnknownType, "nobody"),
        ({"type": "add", "params": {"a": "one"}}, InvalidParams, "a"),
        ({"params": [1]}, InvalidParams, "params"),
        ({"name": "preview"}, Invalid, "name"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_stored(
    engine: Engine, said: dict[str, object], error: type[Invalid], field: str
) -> None:
    with pytest.raises(error, match=field):
        await create(engine, **({"name": "s"} | said))  # type: ignore[arg-type]
    assert await engine.schedules.list(None, 10) == ([], None)


async def test_one_of_that_name_is_refused_left_or_replaced(engine: Engine) -> None:
    await create(engine)
    with pytest.raises(Conflict, match="on_conflict"):
        await create(engine, interval=20)
    assert (await create(engine, interval=20, on_conflict="skip")).when == Every(10 * SECOND)
    replaced = await create(engine, interval=20, on_conflict="replace")
    assert (replaced.when, replaced.version) == (Every(20 * SECOND), 2)
    assert await create(engine, interval=20, on_conflict="replace") == replaced


async def test_declaring_a_paused_schedule_again_does_not_resume_it(engine: Engine) -> None:
    await create(engine)
    await engine.schedules.pause("s")
    assert (await create(engine, interval=20, on_conflict="replace")).paused


async def test_another_when_counts_from_now_and_anything_else_goes_on(engine: Engine, clock: SimulatedClock) -> None:
    made = await create(engine)
    clock.advance(15 * SECOND)
    assert (await engine.schedules.update("s", change(priority=1))).next_tick_at == made.next_tick_at
    hourly = await engine.schedules.update("s", change(cron="0 * * * *"))
    assert (hourly.next_tick_at, hourly.version) == (made.created_at + timedelta(hours=1), 3)
    with pytest.raises(Invalid, match="cron"):
        await engine.schedules.update("s", change(cron="x"))
    assert await engine.schedules.get("s") == hourly


async def test_a_sooner_tick_wakes_a_ticker_that_sleeps(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine, interval=3600)
    simulated = SimulatedTicker(engine, clock)
    await simulated.settles()
    await create(engine, "soon", interval=1)
    clock.advance(SECOND)
    await simulated.step()
    assert len(await history(engine, "soon")) == 1


async def test_a_paused_schedule_gives_no_job_and_a_resumed_one_follows_its_misfire_policy(
    engine: Engine, clock: SimulatedClock
) -> None:
    await create(engine, misfire="skip", misfire_grace_seconds=1)
    simulated = SimulatedTicker(engine, clock)
    await engine.schedules.pause("s")
    await simulated.runs(35 * SECOND)
    assert await history(engine) == []
    await engine.schedules.resume("s")
    await simulated.runs(10 * SECOND)
    records = await history(engine)
    assert [record.job is not None for record in records] == [False, False, False, True]


async def test_a_trigger_is_a_tick_of_its_own(engine: Engine, clock: SimulatedClock) -> None:
    made = await create(engine)
    clock.advance(3 * SECOND)
    first, second = await engine.schedules.trigger("s"), await engine.schedules.trigger("s")
    assert first.id != second.id
    assert {record.job for record in await history(engine)} == {first.id, second.id}
    assert (await engine.schedules.get("s")).next_tick_at == made.next_tick_at
    assert len(await claim(engine)) == 2


async def test_a_paused_schedule_is_triggered_by_hand_and_stays_paused(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine)
    await engine.schedules.pause("s")
    clock.advance(3 * SECOND)
    job = await engine.schedules.trigger("s")
    assert [claimed.job for claimed in await claim(engine)] == [job.id]
    assert (await engine.schedules.get("s")).paused


async def test_a_backfill_fills_only_what_is_empty(engine: Engine, clock: SimulatedClock) -> None:
    start = clock.now()
    await create(engine)
    await SimulatedTicker(engine, clock).runs(25 * SECOND)
    filled = await engine.schedules.backfill("s", start - 30 * SECOND, start + 20 * SECOND)
    assert [record.at for record in filled] == [start + n * 10 * SECOND for n in (-3, -2, -1, 0)]
    assert told(await history(engine)) == {"job": 6}
    assert await engine.schedules.backfill("s", start - 30 * SECOND, start + 20 * SECOND) == []
    assert len(await jobs_of(engine)) == 6


async def test_a_million_ticks_are_not_backfilled(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine, interval=1)
    with pytest.raises(Invalid, match="1,000,001 ticks"):
        await engine.schedules.backfill("s", clock.now() - timedelta(seconds=1_000_000), clock.now())
    await create(engine, "c", cron="* * * * * *")
    with pytest.raises(Invalid, match="10,000 or more"):
        await engine.schedules.backfill("c", clock.now() - timedelta(seconds=1_000_000), clock.now())
    with pytest.raises(Invalid, match="not come yet"):
        await engine.schedules.backfill("s", clock.now(), clock.now() + SECOND)
    assert await history(engine) == []


async def test_as_many_ticks_as_may_be_are_backfilled_and_not_one_more(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine, interval=1)
    with pytest.raises(Invalid, match="1,001 ticks"):
        await engine.schedules.backfill("s", clock.now() - timedelta(seconds=1000), clock.now())
    filled = await engine.schedules.backfill("s", clock.now() - timedelta(seconds=999), clock.now())
    assert told(list(filled)) == {"job": 1000}


async def test_a_preview_tells_what_will_happen(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine)
    seen = await engine.schedules.preview("s", 3)
    await SimulatedTicker(engine, clock).runs(35 * SECOND)
    assert [job.tick_at for job in await jobs_of(engine)] == list(seen)
    unsaved = msgspec.convert({"cron": "0 0 1 1 *"}, PreviewRequest)
    assert [at.year for at in await engine.schedules.preview_of(unsaved, 2)] == [2031, 2032]


async def test_a_deleted_schedule_leaves_its_jobs_and_ticks_no_more(engine: Engine, clock: SimulatedClock) -> None:
    await create(engine)
    simulated = SimulatedTicker(engine, clock)
    await simulated.runs(11 * SECOND)
    (job,) = await jobs_of(engine)
    await engine.schedules.delete("s")
    await simulated.runs(20 * SECOND)
    assert (await engine.jobs.get(job.id)).state is State.QUEUED
    for gone in (engine.schedules.delete("s"), engine.schedules.history("s", None, 1), engine.schedules.trigger("s")):
        with pytest.raises(NotFound):
            await gone


async def test_pages_of_schedules_come_by_name(engine: Engine) -> None:
    for name in "cab":
        await create(engine, name)
    first, cursor = await engine.schedules.list(None, 2)
    rest, end = await engine.schedules.list(cursor, 2)
    assert ([one.name for one in first], [one.name for one in rest], end) == (["a", "b"], ["c"], None)


class TestInterval:
    """`interval` on a submitted job."""

    async def test_the_first_job_is_now_and_others_follow(self, engine: Engine, clock: SimulatedClock) -> None:
        clock.advance(timedelta(seconds=3))
        job = await submit(engine, interval=10)
        assert (job.tick_at, job.interval, job.state) == (clock.now(), 10 * SECOND, State.QUEUED)
        assert job.schedule is not None
        assert job.schedule.startswith("every-")
        assert [claimed.job for claimed in await claim(engine)] == [job.id]
        await SimulatedTicker(engine, clock).runs(20 * SECOND)
        first, *later = await jobs_of(engine, job.schedule)
        assert first.id == job.id
        assert [one.interval for one in later] == [10 * SECOND] * 2

    async def test_a_key_makes_one_schedule_and_gives_the_same_job_back(self, engine: Engine) -> None:
        job = await submit(engine, interval=10, idempotency_key="k")
        assert (await submit(engine, interval=10, idempotency_key="k")).id == job.id
        with pytest.raises(KeyConflict):
            await submit(engine, interval=20, idempotency_key="k")
        found, _ = await engine.schedules.list(None, 10)
        assert len(found) == 1

    async def test_what_each_job_would_need_for_itself_is_refused(self, engine: Engine) -> None:
        answers = await engine.jobs.submit(
            [
                request(interval=10, delay_seconds=1),
                request(interval=10, params={"a": "x"}),
                request(interval=10, type="nobody"),
                request(),
            ]
        )
        assert [isinstance(answer, Invalid) for answer in answers] == [True, True, True, False]
        assert await engine.schedules.list(None, 10) == ([], None)
