"""A server that gives no more connections: a process goes on with those it has, and its shard stays well."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from penstock.model.clock import SystemClock
from penstock.model.errors import StoreBusy
from penstock.model.ids import ShardId
from penstock.model.shards import ShardMember, shard_map
from penstock.orchestrator import ShardedStore
from penstock.store import Shard
from penstock.store.postgres import PostgresStore
from tests.postgres import server

DEADLINE = timedelta(seconds=10)


@pytest.fixture
def url() -> str:
    """Of a database whose owner may have three connections."""
    server(18).database("scarce")
    server(18).run("DROP ROLE IF EXISTS tenant")
    server(18).run("CREATE ROLE tenant LOGIN CONNECTION LIMIT 3")
    server(18).run("ALTER DATABASE scarce OWNER TO tenant")
    return server(18).url("scarce").replace("penstock@", "tenant@")


@asynccontextmanager
async def orchestrator(url: str, connections: int) -> AsyncIterator[ShardedStore]:
    async def opened(number: ShardId, where: str) -> Shard:
        return await PostgresStore.open(where, shard=number, deadline=DEADLINE, connections=connections)

    members = shard_map([ShardMember(number=ShardId(0), url=url)])
    store = await ShardedStore.open(members, opened, SystemClock(), random.Random(1), deadline=DEADLINE)
    try:
        yield store
    finally:
        await store.close()


async def test_calls_wait_for_a_connection_of_their_own_process(url: str) -> None:
    async with orchestrator(url, connections=20) as store:
        for _ in range(5):
            assert await asyncio.gather(*(store.counts() for _ in range(60))) == [[]] * 60
        assert store.unavailable() == ()


async def test_a_shard_without_a_free_connection_is_busy_and_well(url: str) -> None:
    """The only one waits for the lock of a table; calls and probes are told so meanwhile, and nothing falls."""
    async with orchestrator(url, connections=1) as store:
        with psycopg.connect(server(18).url("scarce")) as holder:
            holder.execute("LOCK TABLE penstock.workers")
            reads = asyncio.create_task(store.workers())
            await asyncio.sleep(0)
            told = await asyncio.gather(*(store.shards()[0].probe() for _ in range(4)), return_exceptions=True)
            assert {type(one) for one in told} == {StoreBusy}
            assert store.unavailable() == ()
            holder.rollback()
        assert await reads == []
