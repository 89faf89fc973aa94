"""Schedulers run one relay for each shard and active subscription, and nothing while there is none."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.events.sinks import connect_sinks
from penstock.model.clock import SystemClock
from penstock.model.ids import JobId
from penstock.model.subscriptions import WebhookSink
from penstock.model.wire.subscriptions import SubscriptionRequest
from penstock.objects.folder import FolderObjects
from penstock.runtime.relays import RelayServices
from penstock.runtime.services import services
from penstock.store.journal import relay_role
from penstock.store.sqlite import SqliteStore
from tests.services.engine_steps import join, submit
from tests.services.relay_stage import event_ids, plain
from tests.webhook_sink import LocalSink, hang, local_sink

WITHIN = 10
SECOND = timedelta(seconds=1)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    clock = SystemClock()
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    engine = Engine(
        store, MemoryBroker(), FolderObjects(tmp_path / "objects", clock), Settings(), clock, random.Random(7)
    )
    connect_sinks(engine)
    await join(engine)
    yield engine
    await engine.close()


@pytest.fixture
async def sink() -> AsyncIterator[LocalSink]:
    async with local_sink() as sink:
        yield sink


async def subscribe(engine: Engine, sink: LocalSink, name: str = "orders") -> None:
    await engine.subscriptions.create(SubscriptionRequest(name=name, sink=WebhookSink(sink.url)))


async def arrived(sink: LocalSink, job: JobId) -> None:
    async with asyncio.timeout(WITHIN):
        while not any(plain(job) in id for one in sink.requests for id in event_ids(one)):
            sink.asked.clear()
            await sink.asked.wait()


async def test_a_new_subscription_is_served_by_a_running_scheduler(engine: Engine, sink: LocalSink) -> None:
    async with services(engine, ticker=False):
        await subscribe(engine, sink)
        await arrived(sink, (await submit(engine)).id)
    (shard,) = engine.store.shards()
    assert await shard.acquire_role(relay_role("orders"), "other", SECOND) is not None
    assert (await shard.relay_state("orders")).position is not None


async def test_a_sink_that_hangs_holds_up_neither_jobs_nor_other_subscriptions(engine: Engine, sink: LocalSink) -> None:
    async with local_sink() as stuck, services(engine, ticker=False):
        stuck.usual = lambda _: hang
        await subscribe(engine, stuck, "stuck")
        await subscribe(engine, sink)
        for _ in range(30):
            await arrived(sink, (await submit(engine)).id)
        assert len(stuck.requests) <= 8


async def test_without_subscriptions_there_is_no_relay_no_notifier_and_no_signal(engine: Engine) -> None:
    relaying = RelayServices(engine, "here")
    await relaying.step()
    assert (relaying.relays, relaying.is_connected) == ((), False)
    await relaying.end()


async def test_relays_of_paused_and_deleted_subscriptions_end(engine: Engine, sink: LocalSink) -> None:
    relaying = RelayServices(engine, "here")
    (shard,) = engine.store.shards()
    await subscribe(engine, sink, "one")
    await subscribe(engine, sink, "two")
    await relaying.step()
    await arrived(sink, (await submit(engine)).id)
    assert relaying.relays == ((shard.shard, "one"), (shard.shard, "two"))
    await engine.subscriptions.pause("one")
    await engine.subscriptions.delete("two")
    await relaying.step()
    async with asyncio.timeout(WITHIN):
        while relaying.relays:
            await asyncio.sleep(0)
            await relaying.step()
    assert await shard.acquire_role(relay_role("one"), "other", SECOND) is not None
    await relaying.end()


async def test_a_subscription_that_is_made_again_under_its_name_begins_anew(engine: Engine, sink: LocalSink) -> None:
    relaying = RelayServices(engine, "here")
    await subscribe(engine, sink)
    await relaying.step()
    await arrived(sink, (await submit(engine)).id)
    await engine.subscriptions.delete("orders")
    await relaying.step()
    between = await submit(engine)
    await engine.clock.sleep(timedelta(milliseconds=2))
    await subscribe(engine, sink)
    await relaying.step()
    await arrived(sink, (await submit(engine)).id)
    await relaying.end()
    assert not any(plain(between.id) in id for one in sink.requests for id in event_ids(one))
