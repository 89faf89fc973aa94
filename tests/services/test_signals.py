"""Two processes that share a broker and a store learn of each other's changes at once, not at their next read."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.config import BrokerSettings, Settings
from penstock.engine import Engine
from penstock.engine.signals import JOURNAL_WANTED_FOR, Actions
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


async def deliver(clock: SimulatedClock) -> None:
    """Let the published signals be sent and received."""
    await turns()
    clock.advance(timedelta(milliseconds=20))
    await turns()


async def test_a_caller_waiting_for_a_job_learns_of_its_end_in_another_process(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submitted(engine)
    waiting = asyncio.ensure_future(elsewhere.jobs.wait(job.id, LONG))
    claimed = await claim_one(engine)
    assert await engine.worker_api.settle([success(claimed, 3)]) == []
    await deliver(clock)
    async with asyncio.timeout(PROMPTLY):
        assert (await waiting).state is State.SUCCEEDED


async def test_a_message_that_cannot_be_read_costs_only_itself(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    heard: list[frozenset[str]] = []
    elsewhere.signals.work.subscribe(heard.append)
    for signal in ("work", "line", "ended"):
        await engine.broker.send_signal(signal, b"\xff")
    engine.signals.work.publish(frozenset({"sums\n", "post"}))
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
    heard: list[None] = []
    engine.signals.cancels.subscribe(heard.append)
    await elsewhere.jobs.cancel(job.id)
    await deliver(clock)
    assert heard == [None]


async def test_a_pause_is_seen_by_the_others_before_their_reading_is_old(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    assert not (await elsewhere.catalog.read()).paused
    await engine.queues.pause(ADD.queue, paused=True)
    await deliver(clock)
    assert (await elsewhere.catalog.read()).paused == {ADD.queue}


async def test_a_job_that_waits_in_the_store_wakes_dispatchers_everywhere(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    wake = elsewhere.tickets.wake.event()
    engine.tickets.mark_backlog(SUMS)
    await deliver(clock)
    assert wake.is_set()


async def test_new_jobs_overtake_no_backlog_that_another_process_has_seen(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    assert (await elsewhere.tickets.room([SUMS]))[SUMS] > 0
    engine.tickets.record_backlog(ShardId(0), frozenset({SUMS}))
    await deliver(clock)
    assert await elsewhere.tickets.room([SUMS]) == {SUMS: 0}


async def test_a_changed_schedule_wakes_tickers_everywhere(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    seen = elsewhere.schedule_version.seen
    engine.signals.schedules.publish(None)
    await deliver(clock)
    assert elsewhere.schedule_version.seen != seen


async def test_a_signal_published_often_is_sent_once(engine: Engine, elsewhere: Engine, clock: SimulatedClock) -> None:
    heard = engine.broker.listen(["backlog"])
    for _ in range(100):
        engine.tickets.mark_backlog(SUMS)
    await deliver(clock)
    engine.tickets.mark_backlog(SUMS)
    await deliver(clock)
    assert [(await anext(aiter(heard))).signal, (await anext(aiter(heard))).signal] == ["backlog", "backlog"]
    listening = asyncio.ensure_future(anext(aiter(heard)))
    await turns()
    assert not listening.done()
    listening.cancel()


async def test_a_reader_of_the_journal_hears_of_submits_claims_and_settles_elsewhere(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    heard: list[None] = []
    await join(engine)
    elsewhere.signals.journal.subscribe(heard.append)
    await deliver(clock)
    await submitted(engine)
    await deliver(clock)
    assert len(heard) == 1
    claimed = await claim_one(engine)
    await deliver(clock)
    assert len(heard) == 2
    await engine.worker_api.settle([success(claimed, 3)])
    await deliver(clock)
    assert len(heard) == 3


async def test_nothing_is_sent_about_the_journal_while_no_process_reads_it(
    engine: Engine, elsewhere: Engine, clock: SimulatedClock
) -> None:
    heard: list[None] = []
    await join(engine)
    unsubscribe = elsewhere.signals.journal.subscribe(lambda _: None)
    await deliver(clock)
    unsubscribe()
    clock.advance(JOURNAL_WANTED_FOR)
    Actions.subscribe(elsewhere.signals.journal, heard.append)  # without saying that it reads
    await submitted(engine)
    await deliver(clock)
    assert heard == []
    elsewhere.signals.journal.wanted.send(None)
    await deliver(clock)
    await submitted(engine)
    await deliver(clock)
    assert len(heard) == 1


async def test_a_process_that_stops_between_its_calls_sends_what_matters_at_once(
    engine: Engine, elsewhere: Engine, settings: Settings, clock: SimulatedClock
) -> None:
    """Neither time passes nor does the loop turn by itself: what is sent is sent before `flush` returns."""
    function = Engine(engine.store, engine.broker, engine.objects, settings, clock, random.Random(9))
    function.signals.send_promptly()
    await join(engine)
    heard: list[str] = []
    elsewhere.signals.cancels.subscribe(lambda _: heard.append("cancels"))
    elsewhere.signals.work.subscribe(lambda _: heard.append("work"))
    job = await submit(function)
    await function.flush()
    await claim_one(engine)
    await function.jobs.cancel(job.id)
    await function.flush()
    await turns()
    assert heard == ["cancels"]
