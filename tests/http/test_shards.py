"""Shards over HTTP: how they are, adding, changing and removing them; and one store without any."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from penstock.api import create_app
from penstock.broker.memory import MemoryBroker
from penstock.client import AsyncClient
from penstock.client.http import AsyncHttpTransport
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.keys import KeyScope
from penstock.model.shards import ShardMember, shard_map
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store.seam import Shard
from penstock.store.sqlite import SqliteStore
from tests.http.api_calls import JOIN, Client, problem, submit
from tests.http.api_keys import client_of, create_key, with_key

SECRET = "geheim"


def in_process(engine: Engine, key: str) -> AsyncHttpTransport:
    return AsyncHttpTransport("http://localhost", httpx2.ASGITransport(app=create_app(engine)), key=key)


def url_of(path: Path) -> str:
    """As a database's, with a password; the file is its path."""
    return f"file://penstock:{SECRET}@here{path}"


@pytest.fixture
async def sharded(tmp_path: Path, settings: Settings) -> AsyncIterator[Engine]:
    """An engine over two shards."""
    clock = SystemClock()

    async def open_shard(number: ShardId, url: str) -> Shard:
        if "nowhere" in url:
            raise StoreUnavailable(f"connection refused at {url}")
        return await SqliteStore.open(Path(url.partition("@here")[2]), shard=number, clock=clock)

    members = [ShardMember(ShardId(number), url_of(tmp_path / f"{number}.db")) for number in range(2)]
    store = await ShardedStore.open(shard_map(members), open_shard, clock, random.Random(5))
    engine = Engine(
        store, MemoryBroker(), FolderObjects(tmp_path / "objects", clock), settings, clock, random.Random(7)
    )
    yield engine
    await engine.close()


@pytest.fixture
async def many(sharded: Engine) -> AsyncIterator[Client]:
    """A client of a server over them."""
    async with client_of(create_app(sharded)) as client:
        (await client.post("/v1/workers", json=JOIN)).raise_for_status()
        yield client


async def test_every_shard_is_listed_with_its_jobs_and_without_its_password(many: Client, tmp_path: Path) -> None:
    for _ in range(20):
        await submit(many)
    answer = await many.get("/v1/shards")
    shards = answer.json()["shards"]
    assert [one["number"] for one in shards] == [0, 1]
    assert sum(one["jobs"]["queued"] for one in shards) == 20
    assert all(one["well"] and one["keyed"] and one["state"] == "active" for one in shards)
    assert shards[0]["url"] == f"file://penstock:***@here{tmp_path}/0.db"
    assert SECRET not in answer.text


async def test_who_may_only_look_sees_shards_without_their_addresses(many: Client, sharded: Engine) -> None:
    await many.patch("/v1/shards/1", json={"state": "down"})
    key = await create_key(sharded, KeyScope.JOBS_READ)
    with with_key(many, key.key):
        answer = await many.get("/v1/shards")
    shards = answer.json()["shards"]
    assert [shard["url"] for shard in shards] == [None, None]
    assert [shard["well"] for shard in shards] == [True, False]
    assert "@here" not in answer.text
    assert "for admins" in shards[1]["reason"]


async def test_a_shard_is_added_changed_drained_and_removed(many: Client, tmp_path: Path) -> None:
    answer = await many.post("/v1/shards", json={"url": url_of(tmp_path / "2.db"), "weight": 5})
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/shards/2")
    added = answer.json()
    assert (added["number"], added["weight"], added["keyed"], added["jobs"]) == (2, 5.0, False, {})
    assert SECRET not in answer.text
    changed = (await many.patch("/v1/shards/2", json={"weight": 0.5})).json()
    assert (changed["weight"], changed["state"]) == (0.5, "active")
    assert "drain it first" in problem(await many.delete("/v1/shards/2"), 409, "conflict")
    drained = (await many.patch("/v1/shards/2", json={"state": "draining"})).json()
    assert (drained["weight"], drained["state"]) == (0.5, "draining")
    assert (await many.delete("/v1/shards/2")).status_code == 204
    assert [one["number"] for one in (await many.get("/v1/shards")).json()["shards"]] == [0, 1]


async def test_a_shard_that_cannot_be_opened_is_not_added_and_its_password_not_told(many: Client) -> None:
    answer = await many.post("/v1/shards", json={"url": f"file://penstock:{SECRET}@nowhere/x"})
    assert "connection refused" in problem(answer, 409, "conflict")
    assert SECRET not in answer.text
    assert len((await many.get("/v1/shards")).json()["shards"]) == 2


async def test_a_shard_that_is_set_down_says_so_and_keeps_its_place(many: Client) -> None:
    item = (await many.patch("/v1/shards/1", json={"state": "down"})).json()
    assert (item["well"], item["reason"], item["jobs"]) == (False, "its operator set it down", None)
    jobs = [await submit(many) for _ in range(9)]
    assert {int(job["id"][15:18], 16) for job in jobs} == {0}
    listed = (await many.get("/v1/jobs")).json()
    assert len(listed["jobs"]) == 5


async def test_a_key_whose_shard_is_down_and_reads_of_its_jobs_get_503_that_name_it(many: Client) -> None:
    jobs = [await submit(many) for _ in range(20)]
    await many.patch("/v1/shards/1", json={"state": "down"})
    answers = [
        await many.post("/v1/jobs", json={"type": "other"}, headers={"Idempotency-Key": f"k{number}"})
        for number in range(20)
    ]
    answers += [await many.get(f"/v1/jobs/{job['id']}") for job in jobs]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 201, 503}
    for answer in refused:
        assert "shard 1" in problem(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_revocation_is_accepted_and_names_the_shard_that_it_did_not_reach(
    many: Client, sharded: Engine
) -> None:
    admin, key = await create_key(sharded, KeyScope.ADMIN), await create_key(sharded, KeyScope.JOBS_READ)
    with with_key(many, admin.key):
        (await many.patch("/v1/shards/1", json={"state": "down"})).raise_for_status()
        for _ in range(2):
            answer = await many.delete(f"/v1/keys/{key.id}")
            assert (answer.status_code, answer.json()) == (202, {"id": key.id, "unreached_shards": [1]})
    async with AsyncClient(transport=in_process(sharded, admin.key)) as sdk:
        assert await sdk.revoke_key(key.id) == (1,)
        await sdk.update_shard(1, state="active")
        other = await sdk.create_key("other", ["jobs:read"])
        assert await sdk.revoke_key(other.id) == ()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PATCH", "/v1/shards/9", {"weight": 1}, 404, "not_found"),
        ("DELETE", "/v1/shards/9", None, 404, "not_found"),
        ("PATCH", "/v1/shards/4096", {"weight": 1}, 422, "invalid"),
        ("PATCH", "/v1/shards/x", {"weight": 1}, 422, "invalid"),
        ("PATCH", "/v1/shards/1", {"weight": -1}, 422, "invalid"),
        ("PATCH", "/v1/shards/1", {"url": "x"}, 422, "invalid"),
        ("POST", "/v1/shards", {"url": ""}, 422, "invalid"),
        ("POST", "/v1/shards", {"url": "x", "number": 1}, 409, "conflict"),
        ("DELETE", "/v1/shards/1?force=true", None, 409, "conflict"),
    ],
)
async def test_what_cannot_be_is_refused(
    many: Client, method: str, path: str, body: dict[str, object] | None, status: int, code: str
) -> None:
    assert problem(await many.request(method, path, json=body), status, code)


async def test_one_store_is_one_shard_and_stays_so(client: Client) -> None:
    await submit(client)
    (only,) = (await client.get("/v1/shards")).json()["shards"]
    assert (only["number"], only["well"], only["jobs"], only["url"]) == (0, True, {"queued": 1}, None)
    for answer in (
        await client.post("/v1/shards", json={"url": "postgresql://x/y"}),
        await client.patch("/v1/shards/0", json={"weight": 2}),
        await client.delete("/v1/shards/0"),
    ):
        assert "set store.shards" in problem(answer, 409, "conflict")
