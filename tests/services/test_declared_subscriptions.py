"""Subscriptions of the settings: a server makes them what their tables say, and leaves their state alone."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import ServerSettings, Settings
from penstock.config.tables import SubscriptionTable
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting, StoreUnavailable
from penstock.model.notices import NoticeChange
from penstock.model.subscriptions import EventFilter, SubscriptionState
from penstock.model.wire.subscriptions import SubscriptionSource
from penstock.objects.folder import FolderObjects
from penstock.runtime.subscriptions import RETRY_EVERY, declare_subscriptions
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.webhook_events import new_secret

URL = "http://127.0.0.1:9/hook"


class FailingStore(SqliteStore):
    """Refuses changes of notices while `is_down`."""

    is_down = False

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        if self.is_down:
            raise StoreUnavailable("down")
        return await super().change_notices(changes)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def store(tmp_path: Path, clock: SimulatedClock) -> AsyncIterator[FailingStore]:
    store = await FailingStore.open(tmp_path / "penstock.db", clock=clock)
    assert isinstance(store, FailingStore)
    yield store
    await store.close()


class Start:
    """Starts servers with tables, one after the other on the same store."""

    def __init__(self, store: FailingStore, clock: SimulatedClock, folder: Path) -> None:
        self._store, self._clock, self._folder = store, clock, folder

    @asynccontextmanager
    async def __call__(
        self, tables: dict[str, dict[str, Any]], environ: dict[str, str] | None = None, host: str = "127.0.0.1"
    ) -> AsyncIterator[Engine]:
        read = {name: SubscriptionTable(**table) for name, table in tables.items()}
        settings = Settings(subscriptions=read, server=ServerSettings(host=host))
        objects = FolderObjects(self._folder, self._clock)
        engine = Engine(self._store, MemoryBroker(), objects, settings, self._clock, random.Random(7))
        async with declare_subscriptions(engine, environ or {}):
            yield engine
        await engine.subscriptions.close()


@pytest.fixture
def start(store: FailingStore, clock: SimulatedClock, tmp_path: Path) -> Start:
    return Start(store, clock, tmp_path / "objects")


async def test_a_table_makes_a_subscription_with_a_secret_of_its_own(start: Start) -> None:
    async with start({"orders": {"url": URL, "states": ("failed",), "batch": 3}}) as engine:
        (item,) = await engine.subscriptions.list()
        assert (item.source, item.batch, item.sink.address) == (SubscriptionSource.SETTINGS, 3, URL)
        assert item.filter == EventFilter(states=("failed",))  # type: ignore[arg-type]
        assert (await engine.subscriptions.find("orders")).secrets[0].text.startswith("whsec_")


async def test_an_unchanged_table_changes_nothing_and_a_changed_one_its_terms_only(start: Start) -> None:
    async with start({"orders": {"url": URL}}) as engine:
        await engine.subscriptions.pause("orders")
        before = await engine.subscriptions.find("orders")
    async with start({"orders": {"url": URL}}) as engine:
        assert await engine.subscriptions.find("orders") == before
    async with start({"orders": {"url": URL, "in_flight": 2}}) as engine:
        after = await engine.subscriptions.find("orders")
        assert (after.limits.in_flight, after.state) == (2, SubscriptionState.PAUSED)
        assert (after.secrets, after.created_at) == (before.secrets, before.created_at)


async def test_another_secret_in_the_variable_is_a_rotation(start: Start) -> None:
    first, second = new_secret(), new_secret()
    table = {"orders": {"url": URL, "secret_env": "ORDERS"}}
    async with start(table, {"ORDERS": first}):
        pass
    async with start(table, {"ORDERS": second}) as engine:
        newest, before = (await engine.subscriptions.find("orders")).secrets
        assert (newest.text, before.text) == (second, first)
        assert before.valid_until is not None
    async with start(table, {"ORDERS": second}) as engine:
        assert (await engine.subscriptions.find("orders")).secrets == (newest, before)


async def test_a_table_that_is_gone_leaves_the_subscription_and_the_list_says_so(start: Start) -> None:
    async with start({"orders": {"url": URL}}):
        pass
    async with start({}) as engine:
        (item,) = await engine.subscriptions.list()
        assert (item.source, item.state) == (SubscriptionSource.REMOVED, SubscriptionState.ACTIVE)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"url": "https://10.0.0.1/"}, ["subscriptions.orders", "10.0.0.1", "webhooks.allow"]),
        ({"url": URL, "secret_env": "NOT_SET"}, ["subscriptions.orders", "secret_env", "NOT_SET"]),
        ({"url": URL, "secret_env": "BAD"}, ["subscriptions.orders", "secret"]),
    ],
)
async def test_a_table_that_cannot_be_used_keeps_the_server_from_starting(
    start: Start, table: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        async with start({"orders": table}, {"BAD": "hunter2"}):
            pass
    assert all(word in refused.value.message for word in words)
    assert "hunter2" not in refused.value.message


async def test_loopback_is_refused_where_others_may_ask_for_subscriptions(start: Start) -> None:
    with pytest.raises(InvalidSetting, match=r"127\.0\.0\.1"):
        async with start({"orders": {"url": URL}}, host="192.0.2.1"):
            pass


async def test_a_host_that_is_not_found_now_is_told_and_declared_all_the_same(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with start({"orders": {"url": "https://nowhere.invalid/"}}) as engine:
        assert (await engine.subscriptions.find("orders")).state is SubscriptionState.ACTIVE
    assert "nowhere.invalid" in caplog.text


async def test_a_store_that_is_down_is_asked_again(start: Start, store: FailingStore, clock: SimulatedClock) -> None:
    store.is_down = True
    async with start({"orders": {"url": URL}}) as engine:
        assert await engine.subscriptions.list() == []
        await clock.wait_for_sleepers()
        clock.advance(RETRY_EVERY)
        await clock.wait_for_sleepers()
        store.is_down = False
        clock.advance(RETRY_EVERY)
        while not await engine.subscriptions.list():
            clock.advance(RETRY_EVERY)
