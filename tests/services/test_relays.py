"""A relay delivers every event of its subscription at least once, in order per job, whatever the sink does."""

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from penstock.api.relay_metrics import read_relays
from penstock.engine import Engine
from penstock.events.relay import Relay
from penstock.model.journal import EventRetention, ParkedState
from penstock.model.subscriptions import DeliveryLimits, EventContent, SubscriptionState
from penstock.model.wire.subscriptions import FilterRequest, ReplayRequest
from penstock.store.journal import relay_role
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import join, submit
from tests.services.relay_stage import NAME, RelayStage, plain
from tests.webhook_sink import hang, local_sink, reply


@pytest.fixture
async def stage(engine: Engine, clock: SimulatedClock) -> AsyncIterator[RelayStage]:
    await join(engine)
    async with local_sink() as sink:
        stage = RelayStage(engine, clock, sink)
        yield stage
        await stage.close()


async def run(relay: Relay, stage: RelayStage, span: timedelta = timedelta(0)) -> None:
    """Step until it rests, for a span of simulated time, about a hundred times in it."""
    until = stage.clock.now() + span
    while True:
        rest = await relay.step()
        if rest > timedelta(0):
            if stage.clock.now() >= until:
                return
            stage.clock.advance(max(rest, span / 100))


async def test_every_event_of_a_job_arrives_in_order(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    jobs = [await submit(stage.engine) for _ in range(5)]
    await stage.settle_all()
    await run(relay, stage)
    assert stage.arrivals() == {plain(job.id): [1, 2, 3] for job in jobs}
    totals = await stage.shard.relay_totals(NAME)
    assert (totals.delivered, totals.failed, totals.waiting) == (15, 0, 0)
    (record,) = await stage.shard.deliveries(NAME, None, 10)
    assert record.events == 15


async def test_a_new_subscription_begins_where_the_journal_ended_at_its_creation(stage: RelayStage) -> None:
    await submit(stage.engine)
    stage.clock.advance(timedelta(seconds=1))
    await stage.subscribe()
    job = await submit(stage.engine)
    await run(await stage.relay(), stage)
    assert stage.arrivals() == {plain(job.id): [1]}


async def test_a_filter_drops_what_is_not_wanted_by_the_facts_and_by_tags(stage: RelayStage) -> None:
    await stage.subscribe(filter=FilterRequest(types=("add",), queues=("sums",), states=("succeeded",), tags=("vip",)))
    wanted = await submit(stage.engine, tags=["vip", "x"])
    await submit(stage.engine)
    await submit(stage.engine, "other", {}, tags=["vip"])
    await stage.settle_all()
    await run(await stage.relay(), stage)
    assert stage.arrivals() == {plain(wanted.id): [3]}


async def test_a_batch_holds_events_of_many_jobs_and_several_of_one_in_order(stage: RelayStage) -> None:
    await stage.subscribe(batch=10)
    jobs = [await submit(stage.engine) for _ in range(10)]
    await stage.settle_all()
    await run(await stage.relay(), stage)
    assert stage.arrivals() == {plain(job.id): [1, 2, 3] for job in jobs}
    assert len(stage.sink.requests) <= 6


async def test_no_two_events_of_a_job_are_under_way_at_once(stage: RelayStage) -> None:
    await stage.subscribe()
    jobs = [await submit(stage.engine) for _ in range(3)]
    await stage.settle_all()
    stage.sink.answers = [hang] * 3
    await run(await stage.relay("impatient"), stage)
    first = [one.headers["webhook-id"] for one in stage.sink.requests]
    assert sorted(first) == sorted(f"evt_{plain(job.id)}_1" for job in jobs)
    assert [(one.attempts, one.due_at is None) for one in await stage.parked()] == [
        *[(1, False)] * 3,
        *[(0, True)] * 6,
    ]


async def test_an_event_that_is_refused_holds_up_the_later_ones_of_its_job_and_no_others(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    poison, *others = [await submit(stage.engine) for _ in range(4)]
    stage.refuses = lambda id: id == f"evt_{plain(poison.id)}_1"
    await run(relay, stage)
    await stage.settle_all()
    await run(relay, stage)
    assert stage.arrivals() == {plain(job.id): [1, 2, 3] for job in others}
    assert [(one.job, one.version, one.attempts) for one in await stage.parked()] == [
        (poison.id, 1, 1),
        (poison.id, 2, 0),
        (poison.id, 3, 0),
    ]
    stage.refuses = lambda _: False
    await run(relay, stage, timedelta(seconds=10))
    assert stage.arrivals()[plain(poison.id)] == [1, 2, 3]
    assert await stage.parked() == []


async def test_an_event_is_dead_after_the_schedule_then_its_job_goes_on_and_a_replay_delivers_it_once(
    stage: RelayStage,
) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    poison = await submit(stage.engine)
    id = f"evt_{plain(poison.id)}_1"
    stage.refuses = lambda one: one == id
    await stage.settle_all()
    for hour in range(100):
        other = await submit(stage.engine, "other", {})
        await run(relay, stage)
        assert stage.arrivals()[plain(other.id)] == [1], hour
        stage.clock.advance(timedelta(hours=1))
    sent = [one for one in stage.sink.requests if one.headers["webhook-id"] == id]
    assert len(sent) == 10
    assert stage.arrivals()[plain(poison.id)] == [2, 3]
    (dead,) = await stage.parked(ParkedState.DEAD)
    assert (dead.version, dead.attempts, dead.error) == (1, 10, "500: no")
    stage.refuses = lambda _: False
    await stage.engine.deliveries.replay(NAME, ReplayRequest(dead=True))
    await run(relay, stage, timedelta(hours=30))
    assert stage.arrivals()[plain(poison.id)] == [2, 3, 1]
    assert await stage.parked(ParkedState.DEAD) == []


async def test_a_sink_that_is_down_costs_a_probe_now_and_then_and_no_rows(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    before = await submit(stage.engine)
    await run(relay, stage)
    stage.refuses = lambda _: True
    jobs = [await submit(stage.engine) for _ in range(40)]
    await run(relay, stage)
    retry_at = (await stage.shard.relay_state(NAME)).retry_at
    assert retry_at is not None
    assert retry_at - stage.clock.now() < timedelta(seconds=7)
    opened = len(stage.sink.requests)
    assert opened <= 1 + 8 + 5
    await run(relay, stage, timedelta(hours=1))
    assert len(stage.sink.requests) - opened <= 80
    assert await stage.parked() == []
    stage.refuses = lambda _: False
    await run(relay, stage, timedelta(minutes=2))
    assert stage.arrivals() == {plain(job.id): [1] for job in (before, *jobs)}
    totals = await stage.shard.relay_totals(NAME)
    assert (totals.delivered, totals.state.failures, totals.state.retry_at) == (41, 0, None)


async def test_what_is_delivered_while_others_fail_is_not_sent_again_once_the_circuit_closes(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    jobs = [await submit(stage.engine) for _ in range(30)]
    down = {plain(job.id) for job in jobs[:3] + jobs[10:]}
    stage.refuses = lambda id: id.split("_")[1] in down
    await run(relay, stage)
    assert (await stage.shard.relay_state(NAME)).retry_at is not None
    stage.refuses = lambda _: False
    await run(relay, stage, timedelta(hours=1))
    assert stage.arrivals() == {plain(job.id): [1] for job in jobs}


async def test_a_probe_is_of_another_job_at_each_turn(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    jobs = [await submit(stage.engine) for _ in range(10)]
    refused = {plain(job.id) for job in jobs[:8]}
    stage.refuses = lambda id: id.split("_")[1] in refused
    await run(relay, stage, timedelta(hours=30))
    assert stage.arrivals() == {plain(job.id): [1] for job in jobs[8:]}


async def test_a_sink_that_is_gone_disables_the_subscription_and_keeps_its_place(stage: RelayStage) -> None:
    await stage.subscribe()
    jobs = [await submit(stage.engine) for _ in range(3)]
    stage.sink.answers = [reply(410)] * 3
    relay = await stage.relay()
    await run(relay, stage)
    known = await stage.engine.subscriptions.find(NAME)
    assert (known.state, known.reason) == (SubscriptionState.DISABLED, "the sink is gone: the sink answered 410 Gone")
    await run(relay, stage, timedelta(minutes=1))
    assert stage.taken == []
    stage.clock.advance(timedelta(seconds=1))
    await stage.engine.subscriptions.resume(NAME)
    await run(await stage.relay("r2"), stage, timedelta(seconds=10))
    assert stage.arrivals() == {plain(job.id): [1] for job in jobs}


async def test_a_redirect_is_a_failure(stage: RelayStage) -> None:
    await stage.subscribe()
    await submit(stage.engine)
    stage.sink.answers = [reply(302, location=stage.sink.url)]
    await run(await stage.relay(), stage)
    (record,) = await stage.shard.deliveries(NAME, None, 10)
    assert (record.delivered, record.status) == (False, 302)
    assert (await stage.parked())[0].attempts == 1


async def test_a_sink_that_asks_for_a_pause_by_429_gets_it_for_all_events(stage: RelayStage) -> None:
    await stage.subscribe(limits=DeliveryLimits(in_flight=1))
    jobs = [await submit(stage.engine) for _ in range(3)]
    stage.sink.answers = [reply(429, retry_after="600")]
    relay = await stage.relay()
    await run(relay, stage, timedelta(minutes=9))
    assert (len(stage.sink.requests), await stage.parked()) == (1, [])
    await run(relay, stage, timedelta(minutes=2))
    assert stage.arrivals() == {plain(job.id): [1] for job in jobs}


async def test_an_event_that_is_refused_with_a_time_waits_that_long(stage: RelayStage) -> None:
    await stage.subscribe()
    job = await submit(stage.engine)
    stage.sink.answers = [reply(503, retry_after="7200")]
    relay = await stage.relay()
    await run(relay, stage)
    (parked,) = await stage.parked()
    assert parked.due_at == stage.clock.now() + timedelta(hours=2)
    await run(relay, stage, timedelta(minutes=119))
    assert stage.taken == []
    await run(relay, stage, timedelta(minutes=2))
    assert stage.arrivals() == {plain(job.id): [1]}


async def test_one_event_that_is_refused_again_and_again_does_not_open_the_circuit(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    poison = await submit(stage.engine)
    stage.refuses = lambda id: id == f"evt_{plain(poison.id)}_1"
    await run(relay, stage, timedelta(hours=20))
    assert (await stage.parked())[0].attempts >= 6
    other = await submit(stage.engine)
    await run(relay, stage)
    assert stage.arrivals() == {plain(other.id): [1]}


async def test_a_batch_with_one_refused_event_holds_up_only_that_one(stage: RelayStage) -> None:
    await stage.subscribe(batch=20)
    relay = await stage.relay()
    poison, *others = [await submit(stage.engine) for _ in range(10)]
    stage.refuses = lambda id: id == f"evt_{plain(poison.id)}_1"
    await run(relay, stage)
    stage.clock.advance(timedelta(seconds=10))
    await run(relay, stage)
    assert stage.arrivals() == {plain(job.id): [1] for job in others}


async def test_what_the_journal_no_longer_has_is_recorded_as_missed(
    stage: RelayStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    await run(relay, stage)
    await submit(stage.engine)
    await stage.settle_all()
    stage.clock.advance(timedelta(days=8))
    await stage.shard.number_entries()
    await stage.shard.prune_journal(EventRetention(), 1_000)
    job = await submit(stage.engine)
    await run(relay, stage)
    assert stage.arrivals() == {plain(job.id): [1]}
    delivered, missed = await stage.shard.deliveries(NAME, None, 10)
    assert (delivered.delivered, missed.delivered, missed.events) == (True, False, 0)
    assert (missed.detail or "").startswith("missed: entries 1 to 3 of the journal are past their retention")
    assert (missed.detail or "") in caplog.text


async def test_a_paused_subscription_is_sent_nothing_and_its_role_is_free(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay()
    await run(relay, stage)
    await stage.engine.subscriptions.pause(NAME)
    relay.subscription = await stage.engine.subscriptions.find(NAME)
    await submit(stage.engine)
    await run(relay, stage)
    assert (stage.taken, relay.has_resigned) == ([], True)
    assert await stage.shard.acquire_role(relay_role(NAME), "other", timedelta(seconds=1)) is not None


async def test_events_that_are_not_wanted_cost_no_write_each(stage: RelayStage) -> None:
    await stage.subscribe(filter=FilterRequest(types=("none",)))
    relay = await stage.relay()
    await run(relay, stage)
    before = (await stage.shard.relay_state(NAME)).position
    for _ in range(3):
        await submit(stage.engine)
        await run(relay, stage)
    assert (await stage.shard.relay_state(NAME)).position == before
    stage.clock.advance(timedelta(seconds=2))
    await submit(stage.engine)
    await run(relay, stage)
    after = (await stage.shard.relay_state(NAME)).position
    assert before is not None
    assert after is not None
    assert after > before


async def test_facts_only_are_sent_without_the_job_and_items_with_it(stage: RelayStage) -> None:
    await stage.subscribe(include=EventContent.FACTS)
    await submit(stage.engine)
    await run(await stage.relay(), stage)
    await submit(stage.engine)
    await run(await stage.relay("r1", include=EventContent.ITEM), stage)
    facts, item = [msgspec.json.decode(one.body)["data"] for one in stage.sink.requests]
    assert (facts.get("job"), item["job"]["params"]) == (None, {"a": 1})


async def test_how_a_relay_stands_is_measured_by_subscription_and_shard(stage: RelayStage) -> None:
    assert "".join(await read_relays(stage.engine)) == ""
    await stage.subscribe()
    relay = await stage.relay()
    poison, _ = await submit(stage.engine), await submit(stage.engine)
    stage.refuses = lambda id: id == f"evt_{plain(poison.id)}_1"
    await run(relay, stage)
    await submit(stage.engine)
    stage.clock.advance(timedelta(seconds=30))
    text = "".join(await read_relays(stage.engine))
    labels = f'{{subscription="orders",shard="{stage.shard.shard}"}}'
    values = dict(line.replace(labels, "").split() for line in text.splitlines() if not line.startswith("#"))
    assert {name.removeprefix("penstock_subscription_"): value for name, value in values.items()} == {
        "lag_seconds": "30",
        "lag_entries": "1",
        "parked": "1",
        "dead": "0",
        "circuit_open": "0",
        "delivered_total": "1",
        "failed_total": "1",
    }
