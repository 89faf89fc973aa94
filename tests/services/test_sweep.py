"""The sweep of a function: each service has its step, one that fails stops no other, and the next is asked for."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.config.function_settings import FunctionSettings
from penstock.engine import Engine
from penstock.events.sinks import connect_sinks
from penstock.functions import handlers
from penstock.functions.budget import RESERVE, Budget, budget_of
from penstock.functions.deliveries import is_about_jobs
from penstock.functions.scaling import FunctionScaling, make_scaling
from penstock.functions.sweep import MOST_RUNS, Sweep, SweepFailed, Upcoming
from penstock.functions.wake_ups import Arrivals
from penstock.model.errors import InvalidSetting, StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.job import NewJob
from penstock.model.subscriptions import WebhookSink
from penstock.model.wire.schedules import ScheduleRequest
from penstock.model.wire.subscriptions import SubscriptionRequest
from penstock.testing.clock import START, SimulatedClock
from tests.gateway import FunctionClient, small_settings
from tests.services.engine_steps import claim, join, submit
from tests.services.fake_fleets import FakeFleets
from tests.webhook_sink import LocalSink, local_sink, reply

LONG = timedelta(minutes=5)
BUSY = timedelta(seconds=5)


class Requests:
    """Keeps what a sweep asks for, in place of a queue."""

    def __init__(self) -> None:
        self.instants: list[datetime | None] = []

    async def request(self, at: datetime | None) -> timedelta | None:
        self.instants.append(at)
        return None

    async def close(self) -> None: ...


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def sweep(engine: Engine, requests: Requests) -> Sweep:
    return Sweep(engine, requests)  # type: ignore[arg-type]


def budget(engine: Engine) -> Budget:
    return Budget(engine.clock, LONG)


async def test_one_sweep_ticks_promotes_reclaims_and_numbers(
    engine: Engine, clock: SimulatedClock, sweep: Sweep
) -> None:
    await join(engine)
    await sweep.run(budget(engine))
    await submit(engine, "add", {"a": 1})
    (lost,) = await claim(engine, "w1", limit=1)
    await submit(engine, "add", {"a": 2}, delay_seconds=10)
    await engine.schedules.create(ScheduleRequest(name="nightly", type="other", interval=20.0))
    clock.advance(timedelta(seconds=30))
    report = await sweep.run(budget(engine))
    assert report.failed == []
    assert {"dispatch", "reclaim", "tick"} <= report.moves.keys()
    assert (await engine.jobs.get(lost.job)).state == "queued"
    assert len(await engine.broker.take(_all(), 10, timedelta(0))) == 3


def _all() -> Any:
    from penstock.model.workers import WorkRequest

    return WorkRequest(types=frozenset({"add", "other"}), queues=None)


async def test_a_step_that_fails_stops_no_other_and_the_invocation_fails_at_its_end(
    engine: Engine, clock: SimulatedClock, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    await submit(engine, "add", {"a": 1}, delay_seconds=1)
    clock.advance(timedelta(seconds=2))

    async def fail(*_: object) -> None:
        raise StoreUnavailable("out of order")

    async def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    (shard,) = engine.store.shards()
    monkeypatch.setattr(type(shard), "expire", fail)
    monkeypatch.setattr(type(shard), "next_tick", break_down)
    report = await sweep.run(budget(engine))
    assert {one.step: one.error for one in report.failed} == {
        "reaper 0": "out of order",
        "ticker": "ZeroDivisionError: a bug",
    }
    assert report.moves == {"dispatch": 1}
    with pytest.raises(SweepFailed, match="out of order"):
        handlers.answer_of(report)


async def test_overlapping_sweeps_are_harmless(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await engine.schedules.create(ScheduleRequest(name="nightly", type="other", interval=20.0))
    for number in range(20):
        await submit(engine, "add", {"a": number}, delay_seconds=5)
    clock.advance(timedelta(seconds=25))
    reports = await asyncio.gather(*(Sweep(engine, None).run(budget(engine)) for _ in range(4)))
    assert [one.failed for one in reports] == [[]] * 4
    assert len(await engine.broker.take(_all(), 100, timedelta(0))) == 21


async def test_when_nothing_is_to_be_done_no_sweep_is_asked_for(
    engine: Engine, sweep: Sweep, requests: Requests
) -> None:
    await join(engine)
    await sweep.run(budget(engine))
    assert requests.instants == [None]


async def test_while_jobs_wait_or_run_the_next_sweep_is_asked_for_soon(
    engine: Engine, clock: SimulatedClock, sweep: Sweep, requests: Requests
) -> None:
    await join(engine)
    await submit(engine, "add", {"a": 1})
    await sweep.run(budget(engine))
    await claim(engine, "w1", limit=1)
    await sweep.run(budget(engine))
    assert requests.instants == [clock.now() + BUSY] * 2


async def test_the_next_sweep_is_asked_for_when_a_job_or_a_tick_falls_due(
    engine: Engine, clock: SimulatedClock, sweep: Sweep, requests: Requests
) -> None:
    await join(engine)
    await submit(engine, "add", {"a": 1}, delay_seconds=30)
    await sweep.run(budget(engine))
    await engine.schedules.create(ScheduleRequest(name="nightly", type="other", interval=20.0))
    await sweep.run(budget(engine))
    assert requests.instants == [clock.now() + timedelta(seconds=30), clock.now() + timedelta(seconds=20)]


async def test_a_step_that_always_has_more_to_do_leaves_the_rest_to_the_next_sweep(
    engine: Engine, sweep: Sweep, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def again(*_: object) -> timedelta:
        return timedelta(0)

    monkeypatch.setattr("penstock.scheduler.journal.JournalService.step", again)
    report = await sweep.run(budget(engine))
    assert report.unfinished == ["journal 0"]
    assert [one.runs for one in report.steps if one.step == "journal 0"] == [MOST_RUNS]
    assert requests.instants == [engine.clock.now() + BUSY]


async def test_without_time_no_step_begins(engine: Engine, sweep: Sweep) -> None:
    report = await sweep.run(Budget(engine.clock, timedelta(0)))
    assert {one.runs for one in report.steps} == {0}
    assert len(report.unfinished) == len(report.steps)


def test_the_budget_is_what_lambda_says_less_a_reserve(clock: SimulatedClock) -> None:
    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 10_000

    assert budget_of(Context(), clock).left == timedelta(seconds=10) - RESERVE
    clock.advance(timedelta(seconds=10))
    assert budget_of(Context(), clock).is_over is False
    assert Budget(clock, timedelta(0)).is_over


def test_the_earliest_of_what_is_known_counts() -> None:
    upcoming = Upcoming()
    assert upcoming.next_at(START, BUSY) is None
    upcoming.note(START + timedelta(seconds=30))
    upcoming.note(None)
    assert upcoming.next_at(START, BUSY) == START + timedelta(seconds=30)
    upcoming.is_busy = True
    assert upcoming.next_at(START, BUSY) == START + BUSY


def new_job(**when: Any) -> NewJob:
    return NewJob(id=JobId("01900000-0000-7000-8000-000000000000"), type="mail", queue="mail", **when)


def test_jobs_that_were_added_tell_when_a_sweep_is_needed() -> None:
    arrivals = Arrivals()
    assert arrivals.take(START) is None
    arrivals.note([new_job(delay=timedelta(seconds=40)), new_job(due_at=START + timedelta(seconds=20))])
    assert arrivals.take(START) == START + timedelta(seconds=20)
    assert arrivals.take(START) is None
    arrivals.note([new_job(delay=timedelta(seconds=40)), new_job()])
    assert arrivals.take(START) == START


def stream_record(sort_key: str) -> dict[str, Any]:
    keys = {"pk": {"S": "01900000-0000-7000-8000-000000000000"}, "sk": {"S": sort_key}}
    return {"eventName": "MODIFY", "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, "SizeBytes": 26}}


def test_what_relays_write_to_the_table_does_not_wake_them() -> None:
    assert is_about_jobs({"Records": [stream_record("relay"), stream_record("job")]})
    assert not is_about_jobs({"Records": [stream_record("relay"), stream_record("role")]})
    for event in ({}, {"source": "aws.scheduler"}, {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]}):
        assert is_about_jobs(event)


@pytest.fixture
async def sink() -> AsyncIterator[LocalSink]:
    async with local_sink() as sink:
        yield sink


async def test_publish_delivers_until_nothing_is_left(engine: Engine, clock: SimulatedClock, sink: LocalSink) -> None:
    connect_sinks(engine)
    await join(engine)
    await engine.subscriptions.create(SubscriptionRequest(name="orders", sink=WebhookSink(sink.url)))
    clock.advance(timedelta(milliseconds=1))
    for number in range(250):
        await submit(engine, "add", {"a": number})
    sweeps = [Sweep(engine, None), Sweep(engine, None)]
    for one in sweeps:
        report = await one.deliver(budget(engine))
        assert (report.failed, report.unfinished, len(sink.requests)) == ([], (), 250)
        await one.close()


async def test_an_attempt_that_failed_is_made_again_by_a_sweep_at_its_time(
    engine: Engine, clock: SimulatedClock, sink: LocalSink, sweep: Sweep, requests: Requests
) -> None:
    connect_sinks(engine)
    await join(engine)
    await engine.subscriptions.create(SubscriptionRequest(name="orders", sink=WebhookSink(sink.url)))
    clock.advance(timedelta(milliseconds=1))
    sink.answers = [reply(500)]
    await submit(engine, "add", {"a": 1})
    await sweep.deliver(budget(engine))
    await sweep.close()
    (at,) = requests.instants
    assert at is not None
    assert timedelta(seconds=3) < at - clock.now() < timedelta(seconds=7)


async def test_a_sweep_starts_a_worker_for_a_job_that_waits_and_the_next_process_no_second_one(
    engine: Engine, clock: SimulatedClock
) -> None:
    engine.settings = replace(engine.settings, functions=FunctionSettings(app="shop:app"))
    fleets = FakeFleets(clock)
    sweep = Sweep(engine, None, FunctionScaling(engine, fleets))
    await join(engine, "before")
    await submit(engine, "add", {"a": 1})
    report = await sweep.run(budget(engine))
    assert report.failed == []
    assert [one.order.app for one in fleets.workers.values()] == ["shop:app"]
    clock.advance(timedelta(minutes=1))
    again = Sweep(engine, None, FunctionScaling(engine, fleets))
    await again.run(budget(engine))
    assert len(fleets.workers) == 1
    await sweep.close()
    await again.close()


def test_workers_cannot_be_processes_of_a_function(engine: Engine) -> None:
    assert make_scaling(engine) is None
    engine.settings = replace(engine.settings, functions=FunctionSettings(app="shop:app"))
    with pytest.raises(InvalidSetting, match="ecs"):
        make_scaling(engine)


def test_the_functions_sweep_and_publish_answer_what_they_did(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.functions.host import FunctionHost

    host = FunctionHost(small_settings(tmp_path))
    FunctionClient(host).add(delay_seconds=0.01)
    answer = handlers.sweep_on(host, None)
    assert [one["step"] for one in answer["steps"]] == [
        "reaper 0", "ticker", "dispatcher 0", "journal 0", "metrics", "relays", "pruner 0",
    ]  # fmt: skip
    assert handlers.publish_on(host, {}, None)["steps"][0]["step"] == "relays"
    assert handlers.publish_on(host, {"Records": [stream_record("role")]}, None) == {"ignored": True}
    assert '"Namespace":"Penstock"' in capsys.readouterr().out
    host.close()
