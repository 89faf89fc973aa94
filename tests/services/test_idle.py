"""A system that has nothing to do writes nothing but heartbeats, whatever it has been through."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.ids import ShardId
from penstock.model.shards import ShardState
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.scheduler import Dispatcher, JournalService, Pruner, Reaper
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.transaction import SqliteTransaction
from tests.services.engine_steps import claim, join, submit, success
from tests.services.faulty_shards import FaultyShards

HEARTBEATS = {"shard", "workers"}
"""Tables: the row that probes write, and what workers say of themselves."""

TELLING = {"put_notices", "change_notices"}
"""What locks a row, and writes that, even where it changes none."""


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        # As on a real clock: its instants are finer than what is kept of them.
        case.clock.advance(timedelta(microseconds=678))
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator()


@pytest.fixture
async def engine(case: FaultyShards, store: ShardedStore, tmp_path: Path) -> AsyncIterator[Engine]:
    objects = FolderObjects(tmp_path / "objects", case.clock)
    engine = Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(7))
    await join(engine)
    yield engine
    await engine.tickets.close()


def watch(tx: SqliteTransaction) -> None:
    """Note from now on in which tables this connection writes."""
    tables = [
        str(name)
        for (name,) in tx.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%sqlite%'"
        )
    ]
    tx.connection.execute("CREATE TEMP TABLE writes (name TEXT)")
    for name in tables:
        for move in ("INSERT", "UPDATE", "DELETE"):
            tx.connection.execute(
                f"CREATE TEMP TRIGGER note_{name}_{move} AFTER {move} ON main.{name} "  # noqa: S608 - names of tables
                f"BEGIN INSERT INTO writes VALUES ('{name}'); END"
            )


async def written(store: SqliteStore) -> set[str]:
    return await store.writer.run(
        lambda tx: {str(name) for (name,) in tx.connection.execute("SELECT DISTINCT name FROM temp.writes")}
    )


async def test_a_healed_system_that_idles_writes_nothing_but_heartbeats(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    """Two processes; the shard map and a pause are changed while a shard is away, jobs come and go."""
    other = await case.orchestrator()
    await case.falls(store, 1)
    await case.until(lambda: 1 in other.unavailable())
    await store.admin.change(ShardId(2), 2.0, ShardState.ACTIVE, keyed=None)
    await engine.queues.pause("sums", paused=True)
    await engine.queues.pause("sums", paused=False)
    await submit(engine)
    await engine.worker_api.settle([success(one) for one in await claim(engine)])
    await case.heals(store, 1)
    await case.until(lambda: 1 not in other.unavailable())
    services: list[Dispatcher | Reaper | Pruner | JournalService] = []
    services += [kind(engine, shard) for shard in store.shards() for kind in (Dispatcher, Reaper, Pruner)]
    services += [JournalService(shard) for shard in store.shards()]

    async def live(seconds: int) -> None:
        for _ in range(seconds):
            for service in services:
                await service.step()
            case.clock.advance(timedelta(seconds=1, microseconds=77))
            await case.work.rest()

    await live(10)
    shards = [case.shard(number).inside for number in range(3)]
    for shard in shards:
        await shard.writer.run(watch)
    for number in range(3):
        case.shard(number).asked.clear()
    await live(10)
    assert not TELLING & {name for number in range(3) for name in case.shard(number).asked}
    assert [await written(shard) - HEARTBEATS for shard in shards] == [set(), set(), set()]
