"""Jobs whose user gave no key, from the SDK to several shards: spread over those that take new ones, once each."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from penstock.api import create_app
from penstock.broker.memory import MemoryBroker
from penstock.client import AsyncClient
from penstock.client.http import AsyncHttpTransport
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, ShardId, shard_of
from penstock.model.sdk_keys import read_sdk_key
from penstock.model.shards import ShardState
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from tests.services.engine_steps import ADD, OTHER
from tests.services.faulty_shards import Behaviour, FaultyShards

URL = "http://localhost"


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator(range(2))


class Line(httpx2.AsyncBaseTransport):
    """To a server in this process. So many good answers are lost, and then something else happens."""

    def __init__(self, inside: httpx2.AsyncBaseTransport) -> None:
        self._inside = inside
        self.lose = 0
        self.lost: Callable[[ShardId], Awaitable[object]] | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._inside.handle_async_request(request)
        named = read_sdk_key(request.headers.get("idempotency-key", ""))
        if self.lose and answer.status_code in (200, 201):
            self.lose -= 1
            await answer.aread()
            if self.lost is not None and named is not None and named.home is not None:
                await self.lost(named.home)
            raise httpx2.ReadError("connection reset")
        return answer


@pytest.fixture
async def line(case: FaultyShards, store: ShardedStore, tmp_path: Path) -> AsyncIterator[Line]:
    objects = FolderObjects(tmp_path / "objects", case.clock)
    engine = Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(7))
    await engine.catalog.declare([ADD, OTHER])
    yield Line(httpx2.ASGITransport(app=create_app(engine)))
    await engine.tickets.close()


@pytest.fixture
async def client(line: Line) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(transport=AsyncHttpTransport(URL, line), patience=0.6) as client:
        yield client


async def homes(client: AsyncClient, jobs: int = 60) -> Counter[int]:
    """Where as many new jobs are."""
    return Counter([shard_of(JobId((await client.submit("other")).id)) for _ in range(jobs)])


async def total(store: ShardedStore) -> int:
    return sum(count.jobs for count in await store.counts())


async def test_jobs_are_spread_over_all_shards(client: AsyncClient) -> None:
    found = await homes(client)
    assert set(found) == {0, 1}
    assert min(found.values()) > 15


async def test_one_process_per_job_spreads_them_too(line: Line) -> None:
    found: Counter[int] = Counter()
    for _ in range(40):
        async with AsyncClient(transport=AsyncHttpTransport(URL, line)) as client:
            found += await homes(client, 1)
    assert min(found[0], found[1]) > 8


async def test_a_new_shard_gets_its_share_though_no_keys_live_there(client: AsyncClient, store: ShardedStore) -> None:
    await homes(client, 5)
    await store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=False)
    assert (await homes(client))[2] > 8


@pytest.mark.parametrize("weight", [None, 0.0], ids=["draining", "without weight"])
async def test_a_shard_that_takes_no_new_jobs_gets_none(
    client: AsyncClient, store: ShardedStore, weight: float | None
) -> None:
    await homes(client, 5)
    await store.admin.change(ShardId(1), weight, ShardState.DRAINING if weight is None else None, keyed=None)
    assert set(await homes(client)) == {0}


async def test_a_shard_that_is_down_costs_no_submit(
    case: FaultyShards, client: AsyncClient, store: ShardedStore
) -> None:
    await homes(client, 5)
    await case.falls(store, 1)
    assert await homes(client) == {0: 60}


async def test_nor_does_one_that_nobody_knows_yet_to_be_down(case: FaultyShards, client: AsyncClient) -> None:
    await homes(client, 5)
    case.shard(1).behaviour = Behaviour.REFUSES
    assert await homes(client) == {0: 60}


async def test_a_batch_goes_to_one_shard_that_takes_it(
    case: FaultyShards, client: AsyncClient, store: ShardedStore
) -> None:
    await case.falls(store, 0)
    for _ in range(5):
        answers = await client.submit_many([{"type": "other"}, {"type": "other"}])
        assert {shard_of(JobId(one.id)) for one in answers if one.id is not None} == {1}
    assert (await store.counts())[0].jobs == 10


async def test_when_an_answer_is_lost_there_is_one_job(client: AsyncClient, line: Line, store: ShardedStore) -> None:
    for lost in (0, 1, 2):
        line.lose = lost
        await client.submit("other")
        await client.submit_many([{"type": "other"}, {"type": "other"}])
    assert await total(store) == 9


async def test_when_an_answer_is_lost_and_the_shard_drained_meanwhile_there_is_one_job(
    client: AsyncClient, line: Line, store: ShardedStore
) -> None:
    await homes(client, 1)
    for _ in range(9):
        line.lose = 1

        async def drain(home: ShardId) -> None:
            await store.admin.change(home, None, ShardState.DRAINING, keyed=None)

        line.lost = drain
        before = await total(store)
        await client.submit("other")
        assert await total(store) == before + 1
        for number in (0, 1):
            await store.admin.change(ShardId(number), None, ShardState.ACTIVE, keyed=None)


async def test_when_an_answer_is_lost_and_the_shard_dies_it_is_not_submitted_elsewhere(
    case: FaultyShards, client: AsyncClient, line: Line, store: ShardedStore
) -> None:
    await homes(client, 1)
    before = await total(store)
    line.lose = 1
    died: list[int] = []

    async def die(home: ShardId) -> None:
        died.append(home)
        await case.falls(store, home)

    line.lost = die
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await client.submit("other")
    await case.heals(store, died[0])
    assert await total(store) == before + 1


async def test_a_users_own_key_stays_where_it_lives(
    case: FaultyShards, client: AsyncClient, store: ShardedStore
) -> None:
    keys = [f"order-{number}" for number in range(20)]
    placed = {key: store.shard_for(key) for key in keys}
    assert {key: shard_of(JobId((await client.submit("other", key=key)).id)) for key in keys} == placed
    await case.falls(store, 1)
    with pytest.raises(StoreUnavailable):
        await client.submit("other", key=next(key for key, home in placed.items() if home == 1))
