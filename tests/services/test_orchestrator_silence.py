"""A real database that falls silent behind its network: connections stand, and nothing comes back."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from penstock.model.clock import SystemClock, to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, ShardId, new_job_id, shard_of
from penstock.model.job import JobFilter, NewJob, Settlement, Ticket
from penstock.model.lifecycle import State
from penstock.model.notices import Notice
from penstock.model.shards import ShardMember, shard_map
from penstock.model.submission import Inserted, Known
from penstock.orchestrator import ShardedStore
from penstock.store.answers import require
from penstock.store.postgres import PostgresStore
from penstock.store.seam import Shard
from servers import FaultProxy, Postgres
from servers.proxy import Fault
from tests.logs import log_line
from tests.postgres import started
from tests.services.faulty_shards import LEASE, PATIENCE, TICKET, key_at, wait_for_repairs

SILENT = ShardId(2)
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = started(18)
    yield server
    server.kill()


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[FaultProxy]:
    with FaultProxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
async def store(postgres: Postgres, proxy: FaultProxy) -> AsyncIterator[ShardedStore]:
    """Three databases, the last of them behind the proxy."""
    urls = [postgres.database(f"silence{number}") for number in range(3)]
    urls[SILENT] = urlsplit(urls[SILENT])._replace(netloc=f"penstock@127.0.0.1:{proxy.port}").geturl()

    async def open_shard(number: ShardId, url: str) -> Shard:
        return await PostgresStore.open(url, shard=number, connections=4)

    members = shard_map(ShardMember(ShardId(number), url) for number, url in enumerate(urls))
    store = await ShardedStore.open(members, open_shard, CLOCK, random.Random(5))
    yield store
    proxy.fault = Fault.NONE
    await store.close()


def new(at: ShardId, key: str | None = None) -> NewJob:
    id = new_job_id(to_millis(CLOCK.now()), at, random.Random(f"{at} {key}"))
    return NewJob(id=id, type="mail", queue="mail", key=key)


async def test_one_silent_shard_is_its_own_trouble_and_comes_back_whole(store: ShardedStore, proxy: FaultProxy) -> None:
    before = [new(ShardId(number)) for number in range(3)]
    await store.submit(before, TICKET)
    mine, theirs = before[SILENT].id, before[0].id

    with log_line("shard 2 does not answer") as fallen:
        proxy.fault = Fault.SILENT
        waiting = asyncio.ensure_future(store.get([mine]))
        async with asyncio.timeout(PATIENCE):
            await fallen.wait()
    assert store.unavailable() == (SILENT,)
    with pytest.raises(StoreUnavailable, match="shard 2"):
        await waiting
    await as_if_it_were_not_there(store, mine, theirs)

    with log_line("shard 2 answers again") as well:
        proxy.fault = Fault.NONE
        async with asyncio.timeout(PATIENCE):
            await well.wait()
    assert store.unavailable() == ()
    (found,) = await store.get([mine])
    assert found is not None
    (claim,) = await store.claim([Ticket(SILENT, mine, "mail", "mail")], "w1", LEASE)
    (settled,) = require(await store.settle([Settlement(job=mine, fence=claim.fence, state=State.SUCCEEDED)]))
    assert settled.event is not None
    (again,) = await store.submit([new(SILENT, key_at(store, SILENT))], TICKET)
    assert isinstance(again, Inserted | Known)
    assert shard_of(again.job.id) == SILENT
    await told_what_it_missed(store)


async def as_if_it_were_not_there(store: ShardedStore, mine: JobId, theirs: JobId) -> None:
    assert {store.shard_for() for _ in range(99)} == {0, 1}
    with pytest.raises(StoreUnavailable, match="shard 2 does not answer"):
        await store.submit([new(SILENT, key_at(store, SILENT))], TICKET)
    with pytest.raises(StoreUnavailable, match="shard 2 does not answer"):
        await store.get([mine])
    page = await store.page(JobFilter(), None, 9)
    assert ({shard_of(job.id) for job in page.jobs}, page.missing) == ({0, 1}, (SILENT,))
    assert len(await store.claim([Ticket(ShardId(0), theirs, "mail", "mail")], "w1", LEASE)) == 1
    await store.put_notices([Notice("pause", "mail", b"true", CLOCK.now())])


async def told_what_it_missed(store: ShardedStore) -> None:
    (shard,) = [part for part in store.shards() if part.shard == SILENT]
    async with asyncio.timeout(PATIENCE):
        while not any(one.kind == "pause" for one in await shard.notices()):
            await wait_for_repairs(store)
