"""Two processes that share a broker and a store hear of each other at once, not at their next reading."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.config import BrokerSettings, Settings
from penstock.engine import Engine
from penstock.model.ids import ShardId
from penstock.model.job import BacklogKey, Job
from penstock.model.lifecycle import State
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ADD, LONG, claim_one, join, submit, success

PROMPTLY = 20.0
SUMS = BacklogKey("sums", "add")


@pytest.fixture
def settings() -> Settings:
    return Settings(broker=BrokerSettings(url="redis://shared"))


@pytest.fixture
async def elsewhere(engine: Engine, clock: SimulatedClock, settings: Settings) -> AsyncIterator[Engine]:
    """A second engine over the same store, broker and objects; both listen."""
    other = Engine(engine.store, engine.broker, engine.objects, settings, clock, random.Random(8))
    listening = [asyncio.ensure_future(one.signals.listen()) for one in (engine, other)]
    await turns()
    yield other
    for task in listening:
        task.cancel()


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def submitted(engine: Engine) -> Job:
    """A job whose ticket has gone out."""
    job = await submit(engine)
    await turns()
    return job


async def rung(clock: SimulatedClock) -> None:
    """Let what was rung go out and be heard."""
    await turns()
    clock.advance(timedelta(milliseconds=20))
    await turns()


async def test_who_waits_for_a_job_hears_of_its_end_in_another_process(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submitted(engine)
    waiting = asyncio.ensure_future(elsewhere.jobs.wait(job.id, LONG))
    claimed = await claim_one(engine)
    assert await engine.worker_api.settle([success(claimed, 3)]) == []
    await rung(clock)
    async with asyncio.timeout(PROMPTLY):
        assert (await waiting).state is State.SUCCEEDED


async def test_a_ring_that_cannot_be_read_costs_only_itself(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    heard: list[frozenset[str]] = []
    elsewhere.arrivals.listen(heard.append)
    for bell in ("work", "line", "ended"):
        await engine.broker.send_signal(bell, b"\xff")
    engine.signals.publish_work(frozenset({"sums\n", "post"}))
    await turns()
    clock.advance(timedelta(milliseconds=100))
    await turns()
    assert heard == [{"sums\n", "post"}]


async def test_a_cancel_in_one_process_asks_for_a_heartbeat_in_the_others(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submitted(engine)
    await claim_one(engine)
    await elsewhere.jobs.cancel(job.id)
    await rung(clock)
    assert engine.signals.cancels.is_set()


async def test_a_pause_is_seen_by_the_others_before_their_reading_is_old(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    assert not (await elsewhere.catalog.read()).paused
    await engine.queues.pause(ADD.queue, paused=True)
    await rung(clock)
    assert (await elsewhere.catalog.read()).paused == {ADD.queue}


async def test_a_job_that_waits_in_the_store_wakes_dispatchers_everywhere(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    wake = elsewhere.tickets.wake.event()
    engine.tickets.mark_backlog(SUMS)
    await rung(clock)
    assert wake.is_set()


async def test_new_jobs_overtake_no_line_that_another_process_has_seen(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    assert (await elsewhere.tickets.room([SUMS]))[SUMS] > 0
    engine.tickets.record_backlog(ShardId(0), frozenset({SUMS}))
    await rung(clock)
    assert await elsewhere.tickets.room([SUMS]) == {SUMS: 0}


async def test_a_changed_schedule_wakes_tickers_everywhere(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    seen = elsewhere.changes.seen
    engine.changes.publish()
    await rung(clock)
    assert elsewhere.changes.seen != seen


async def test_what_is_rung_often_goes_out_once(engine: Engine, elsewhere: Engine, clock: SimulatedClock) -> None:
    heard = engine.broker.listen(["backlog"])
    for _ in range(100):
        engine.tickets.mark_backlog(SUMS)
    await rung(clock)
    engine.tickets.mark_backlog(SUMS)
    await rung(clock)
    assert [(await anext(aiter(heard))).signal, (await anext(aiter(heard))).signal] == ["backlog", "backlog"]
    listening = asyncio.ensure_future(anext(aiter(heard)))
    await turns()
    assert not listening.done()
    listening.cancel()
