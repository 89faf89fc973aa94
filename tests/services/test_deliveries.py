"""Deliveries over several shards: logs merged, replays on all of them, and a shard that is away named."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.journal import DeliveryRecord, Parked, ParkedState, Position, RelayState, RelayWrite
from penstock.model.subscriptions import Subscription, SubscriptionSink, WebhookSink
from penstock.model.wire.subscriptions import ReplayRequest, SubscriptionRequest, TestOutcome
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store import Shard
from penstock.store.journal import relay_role
from tests.services.faulty_shards import FaultyShards

NUMBERS = range(3)
REQUEST = SubscriptionRequest(name="orders", sink=WebhookSink("https://shop.example/"))


class OpenSinks:
    """Takes every sink, and reaches none."""

    async def check(self, sink: SubscriptionSink) -> None: ...

    async def send_test(self, subscription: Subscription) -> TestOutcome:
        raise NotImplementedError

    async def close(self) -> None: ...


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator(NUMBERS)


@pytest.fixture
async def engine(case: FaultyShards, store: ShardedStore, tmp_path: Path) -> Engine:
    objects = FolderObjects(tmp_path / "objects", case.clock)
    engine = Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(7))
    engine.subscriptions.sinks = OpenSinks()
    return engine


async def save(shard: Shard, **write: object) -> None:
    """Write as the relay does that has delivered everything."""
    fence = await shard.acquire_role(relay_role("orders"), "test", timedelta(minutes=1))
    assert fence is not None
    state = RelayState(position=Position(await shard.number_entries() + 1))
    assert await shard.save_relay("orders", fence, RelayWrite(state=state, **write))  # type: ignore[arg-type]


async def test_the_logs_of_all_shards_are_one_newest_first(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    await engine.subscriptions.create(REQUEST)
    for turn in range(2):
        for shard in store.shards():
            case.clock.advance(timedelta(seconds=1))
            name = f"{turn}-{shard.shard}"
            await save(
                shard, log=[DeliveryRecord(at=case.clock.now(), delivered=False, first=name, last=name, events=1)]
            )
    first = await engine.deliveries.log("orders", None, 4)
    second = await engine.deliveries.log("orders", first.before, 4)
    found = [one.first for one in (*first.deliveries, *second.deliveries)]
    assert found == ["1-2", "1-1", "1-0", "0-2", "0-1", "0-0"]
    assert (len(first.deliveries), second.before) == (4, None)


async def test_a_shard_that_is_away_is_named_and_the_others_are_told(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    await engine.subscriptions.create(REQUEST)
    await case.falls(store, 1)
    report = await engine.deliveries.report("orders")
    assert ([one.shard for one in report.relays], report.missing_shards) == ([0, 2], (1,))
    assert (await engine.deliveries.log("orders", None, 10)).missing_shards == (1,)


async def test_a_span_is_replayed_on_every_shard_or_on_none(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    since = case.clock.now()
    for number in NUMBERS:
        await case.submit(store, number)
    case.clock.advance(timedelta(seconds=1))
    await engine.subscriptions.create(REQUEST)
    for shard in store.shards():
        await save(shard)
    case.clock.advance(timedelta(seconds=1))
    await case.falls(store, 2)
    with pytest.raises(StoreUnavailable):
        await engine.deliveries.replay("orders", ReplayRequest(since=since))
    assert await case.shard(0).inside.read_parked("orders", ParkedState.WAITING, 10) == []
    await case.heals(store, 2)
    assert (await engine.deliveries.replay("orders", ReplayRequest(since=since))).events == len(NUMBERS)
    for number in NUMBERS:
        assert len(await case.shard(number).inside.read_parked("orders", ParkedState.WAITING, 10)) == 1


async def test_the_dead_of_all_shards_are_replayed_as_many_as_one_call_may(
    case: FaultyShards, store: ShardedStore, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.deliveries.MOST_REPLAYED", 4)
    await engine.subscriptions.create(REQUEST)
    for shard in store.shards():
        job = case.new_id(shard.shard)
        await save(shard, parked=[Parked(job=job, version=n, event=b"{}", state=ParkedState.DEAD) for n in (1, 2)])
    first = await engine.deliveries.replay("orders", ReplayRequest(dead=True))
    second = await engine.deliveries.replay("orders", ReplayRequest(dead=True))
    assert [(one.events, one.more) for one in (first, second)] == [(4, True), (2, False)]


async def test_a_subscription_is_known_as_long_as_one_shard_is(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    await engine.subscriptions.create(REQUEST)
    await case.falls(store, 0)
    assert (await engine.subscriptions.pause("orders")).state == "paused"
    await engine.subscriptions.delete("orders")
    await case.heals(store, 0)
    assert await engine.subscriptions.list() == []
    assert ShardId(0) not in store.unavailable()
