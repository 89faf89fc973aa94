"""API keys over HTTP: making and withdrawing them, what they let in, and what a worker key is limited to."""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.api import create_app
from penstock.broker.memory import MemoryBroker
from penstock.client import AsyncClient
from penstock.client.http import AsyncHttpTransport
from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.clock import seconds
from penstock.model.errors import InvalidSetting, Unauthorized
from penstock.model.keys import KeyScope
from penstock.model.lifecycle import State
from penstock.model.notices import NoticeChange
from penstock.model.workers import JobType
from penstock.runtime.guard import refuse_unguarded
from penstock.testing.clock import SimulatedClock
from tests.http.api_calls import ADD, JOIN, OTHER, WORKER, Client, Json, RawRequest, claim, job, problem, submit
from tests.http.api_keys import FOREIGN, client_of, create_expired_key, create_key, create_revoked_key, with_key

CATALOG_AGE = seconds(Settings().timing.catalog_seconds)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound to it


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, server=ServerSettings(keys="required"))


@pytest.fixture
async def client(app: ASGIApp, engine: Engine) -> AsyncIterator[Client]:
    """An admin's client of a server that needs keys and knows the job types `add` and `other`."""
    async with client_of(app) as client:
        client.headers["authorization"] = f"Bearer {(await create_key(engine, KeyScope.ADMIN)).key}"
        (await client.post("/v1/workers", json=JOIN)).raise_for_status()
        yield client


async def create(client: Client, **terms: object) -> Json:
    answer = await client.post("/v1/keys", json={"name": "shop", "scopes": ["jobs:read"], **terms})
    assert answer.status_code == 201, answer.text
    key: Json = answer.json()
    return key


async def listed(client: Client) -> list[Json]:
    keys: list[Json] = (await client.get("/v1/keys")).json()["keys"]
    return keys


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_a_key_is_shown_once_and_kept_as_a_digest(client: Client, engine: Engine, tmp_path: Path) -> None:
    key = await create(client, lifetime_seconds=3600)
    secret = key["key"].removeprefix(f"pk_{key['id']}_")
    shown = [one for one in await listed(client) if one["id"] == key["id"]]
    assert shown == [{name: value for name, value in key.items() if name != "key"}]
    await engine.store.probe()
    kept = everything_in(tmp_path)
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept
    assert secret.encode() not in kept


async def test_a_key_lets_in_until_it_is_revoked_at_once(client: Client) -> None:
    key = await create(client)
    with with_key(client, key["key"]):
        assert (await client.get("/v1/jobs")).status_code == 200
    assert (await client.delete(f"/v1/keys/{key['id']}")).status_code == 204
    with with_key(client, key["key"]):
        answer = await client.get("/v1/jobs")
        assert "revoked" in problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == 'Bearer realm="penstock", error="invalid_token"'
    assert (await client.delete(f"/v1/keys/{key['id']}")).status_code == 204
    problem(await client.delete("/v1/keys/zzzzzzzz"), 404, "not_found")
    assert key["id"] not in {one["id"] for one in await listed(client)}


async def test_a_key_that_is_rotated_stays_good_for_the_grace_beside_its_heir(client: Client) -> None:
    old = await create(client, scopes=["worker"], queues=["sums"])
    heir = (await client.post(f"/v1/keys/{old['id']}/rotate", json={"grace_seconds": 600})).json()
    assert heir["id"] != old["id"]
    assert [heir[term] for term in ("name", "scopes", "queues")] == ["shop", ["worker"], ["sums"]]
    kept = {one["id"]: one for one in await listed(client)}
    left = datetime.fromisoformat(kept[old["id"]]["expires_at"]) - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(seconds=600)
    assert kept[heir["id"]]["expires_at"] is None
    for key in (old, heir):
        with with_key(client, key["key"]):
            assert (await client.post("/v1/workers", json=JOIN)).status_code == 200


async def test_a_rotation_without_grace_ends_the_old_key_and_never_lengthens_its_life(client: Client) -> None:
    old = await create(client, lifetime_seconds=60)
    await client.post(f"/v1/keys/{old['id']}/rotate", json={"grace_seconds": 3600})
    (kept,) = [one for one in await listed(client) if one["id"] == old["id"]]
    assert kept["expires_at"] == old["expires_at"]
    await client.post(f"/v1/keys/{old['id']}/rotate", json={"grace_seconds": 0})
    with with_key(client, old["key"]):
        problem(await client.get("/v1/jobs"), 401, "unauthorized")
    problem(await client.post("/v1/keys/aaaaaaaa/rotate", json={}), 404, "not_found")


@pytest.mark.parametrize(
    "terms",
    [
        {"scopes": []},
        {"scopes": ["jobs:everything"]},
        {"queues": ["sums"]},
        {"scopes": ["worker", "admin"], "queues": ["sums"]},
        {"scopes": ["worker"], "queues": []},
        {"lifetime_seconds": 0},
        {"name": ""},
    ],
)
async def test_a_key_that_would_mean_nothing_is_refused(client: Client, terms: Json) -> None:
    answer = await client.post("/v1/keys", json={"name": "shop", "scopes": ["jobs:read"], **terms})
    problem(answer, 422, "invalid")


async def test_another_process_refuses_a_revoked_key_once_its_reading_is_old(engine: Engine, client: Client) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    other = Engine(engine.store, MemoryBroker(), engine.objects, engine.settings, clock, random.Random(1))
    key = await create(client)
    async with client_of(create_app(other)) as elsewhere:
        with with_key(elsewhere, key["key"]):
            assert (await elsewhere.get("/v1/jobs")).status_code == 200
            await client.delete(f"/v1/keys/{key['id']}")
            clock.advance(CATALOG_AGE + timedelta(milliseconds=1))
            problem(await elsewhere.get("/v1/jobs"), 401, "unauthorized")


async def test_a_key_that_expires_while_it_is_remembered_is_refused(engine: Engine, client: Client) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    other = Engine(engine.store, MemoryBroker(), engine.objects, engine.settings, clock, random.Random(1))
    key = await create(client, lifetime_seconds=3600)
    async with client_of(create_app(other)) as elsewhere:
        with with_key(elsewhere, key["key"]):
            assert (await elsewhere.get("/v1/jobs")).status_code == 200
            clock.set(datetime.fromisoformat(key["expires_at"]))
            problem(await elsewhere.get("/v1/jobs"), 401, "unauthorized")


async def test_a_job_that_comes_again_needs_the_scope_of_schedules_too(client: Client, engine: Engine) -> None:
    writer = await create_key(engine, KeyScope.JOBS_WRITE)
    planner = await create_key(engine, KeyScope.JOBS_WRITE, KeyScope.SCHEDULES)
    body = {"type": "other", "interval": 60}
    with with_key(client, writer.key):
        assert "schedules" in problem(await client.post("/v1/jobs", json=body), 403, "forbidden")
        batch = (await client.post("/v1/jobs/batch", json={"jobs": [body, {"type": "other"}]})).json()
        assert [(one.get("problem") or {}).get("code") for one in batch["jobs"]] == ["forbidden", None]
    with with_key(client, planner.key):
        assert (await client.post("/v1/jobs", json=body)).status_code == 201


async def test_a_worker_key_of_one_queue_never_gets_a_job_of_another(client: Client, engine: Engine) -> None:
    mine, other = await submit(client, "add", params={"a": 1}), await submit(client, "other")
    key = await create_key(engine, KeyScope.WORKER, queues=["sums"])
    with with_key(client, key.key):
        assert [one["job"] for one in await claim(client)] == [mine["id"]]
        assert await claim(client) == []
        asked = {"types": ["add", "other"], "limit": 9, "wait_seconds": 0, "queues": ["sums", "other"]}
        told = problem(await client.post("/v1/workers/w1/claim", json=asked), 403, "forbidden")
    assert "sums only, not of other" in told
    assert [one["job"] for one in await claim(client)] == [other["id"]]


async def test_a_claim_cut_off_while_its_key_is_looked_at_again_gives_its_jobs_back(
    app: ASGIApp, client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await create_key(engine, KeyScope.WORKER)
    item = await submit(client)
    admit, looking_again = engine.keys.admit, asyncio.Event()

    async def look_again(*arguments: Any, **more: Any) -> Any:
        if (await engine.jobs.get(item["id"])).state is State.RUNNING:
            looking_again.set()
            await asyncio.Event().wait()
        return await admit(*arguments, **more)

    monkeypatch.setattr(engine.keys, "admit", look_again)
    headers = [(b"content-type", b"application/json"), (b"authorization", f"Bearer {key.key}".encode())]
    asked = b'{"types":["other"],"limit":1,"wait_seconds":5}'
    serving = asyncio.create_task(RawRequest(app, "POST", "/v1/workers/w1/claim", headers).says(asked).run())
    await asyncio.wait_for(looking_again.wait(), 5)
    serving.cancel()
    await asyncio.wait({serving}, timeout=5)
    assert (await engine.jobs.get(item["id"])).state is State.QUEUED


async def test_a_claim_that_waits_gets_nothing_once_its_key_is_revoked(
    app: ASGIApp, client: Client, engine: Engine
) -> None:
    key = await create_key(engine, KeyScope.WORKER)
    headers = [(b"content-type", b"application/json"), (b"authorization", f"Bearer {key.key}".encode())]
    asked = json.dumps({"types": ["other"], "limit": 5, "wait_seconds": 30}).encode()
    raw = RawRequest(app, "POST", "/v1/workers/w1/claim", headers).says(asked)
    waiting = asyncio.create_task(raw.run())
    await raw.listening.wait()
    await client.delete(f"/v1/keys/{key.id}")
    item = await submit(client, "other")
    await asyncio.wait_for(waiting, 30)
    assert raw.status == 401
    assert b"claims" not in raw.sent[1]["body"]
    given_back = await job(client, item["id"])
    assert (given_back["state"], given_back["attempt"]) == ("queued", 0)


async def test_a_worker_key_of_one_queue_touches_no_attempt_of_another(client: Client, engine: Engine) -> None:
    upload = (await client.post("/v1/uploads", content=b"secret")).json()["id"]
    foreign = await submit(client, "other", inputs={"letter": upload})
    (held,) = await claim(client)
    lease = {"job": held["job"], "fence": held["fence"]}
    output = f"/v1/workers/w1/outputs/{held['job']}/{held['fence']}/0"
    digest = hashlib.sha256(b"x").hexdigest()
    moves = [
        ("POST", "/v1/workers/w1/settle", {"json": {"outcomes": [{**lease, "result": 1}]}}),
        ("POST", "/v1/workers/w1/renew", {"json": {"worker": WORKER, "leases": [lease]}}),
        ("POST", "/v1/workers/w1/release", {"json": {"leases": [lease]}}),
        ("POST", "/v1/workers/w1/log", {"json": {"entries": [{**lease, "lines": []}]}}),
        ("PUT", output, {"content": b"x", "headers": {"digest-sha256": digest}}),
        ("POST", f"{output}/direct", {"json": {"digest": digest, "size": 1}}),
        ("GET", f"/v1/jobs/{foreign['id']}/inputs/letter", {}),
    ]
    limited, free = (
        await create_key(engine, KeyScope.WORKER, queues=["sums"]),
        await create_key(engine, KeyScope.WORKER),
    )
    reader = await create_key(engine, KeyScope.WORKER, KeyScope.JOBS_READ, queues=["sums"])
    for method, path, more in moves:
        with with_key(client, limited.key):
            problem(await client.request(method, path, **more), 403, "forbidden")  # type: ignore[arg-type]
    for key in (free, reader):
        with with_key(client, key.key):
            assert (await client.request(*moves[-1][:2])).content == b"secret"
    with with_key(client, free.key):
        assert (await client.request(*moves[0][:2], **moves[0][2])).json() == {"refused": []}  # type: ignore[arg-type]


async def test_a_limited_worker_is_known_for_its_queues_and_declares_only_their_types(
    client: Client, engine: Engine
) -> None:
    limited = await create_key(engine, KeyScope.WORKER, queues=["sums"])
    new = [{**ADD, "description": "mine"}, {**OTHER, "description": "not mine"}]
    with with_key(client, limited.key):
        joined = await client.post("/v1/workers", json={"worker": {**WORKER, "id": "w2"}, "types": new})
        assert joined.status_code == 200
        asked = {**WORKER, "id": "w2", "queues": ["other"]}
        problem(await client.post("/v1/workers", json={"worker": asked, "types": []}), 403, "forbidden")
    workers = {one["id"]: one["queues"] for one in (await client.get("/v1/workers")).json()["workers"]}
    assert workers == {"w1": None, "w2": ["sums"]}
    types = {one["name"]: one["description"] for one in (await client.get("/v1/types")).json()["types"]}
    assert types == {"add": "mine", "other": None}


async def test_a_limited_worker_key_cannot_make_a_type_of_another_queue_its_own(client: Client, engine: Engine) -> None:
    limited = await create_key(engine, KeyScope.WORKER, queues=["sums"])
    stolen = {"worker": {**WORKER, "id": "w2"}, "types": [{**OTHER, "queue": "sums"}]}
    with with_key(client, limited.key):
        assert "of queue other" in problem(await client.post("/v1/workers", json=stolen), 403, "forbidden")
    item = await submit(client, "other")
    assert item["queue"] == "other"
    with with_key(client, limited.key):
        assert await claim(client) == []


async def test_a_type_that_another_declares_meanwhile_is_not_taken_over(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = await create_key(engine, KeyScope.WORKER, queues=["sums"])
    pay = {"name": "pay", "queue": "pay", "kind": "async"}
    change_notices = engine.store.change_notices

    async def late(changes: Sequence[NoticeChange]) -> list[bool]:
        monkeypatch.setattr(engine.store, "change_notices", change_notices)
        await engine.catalog.declare([msgspec.convert(pay, JobType)])
        return await change_notices(changes)

    monkeypatch.setattr(engine.store, "change_notices", late)
    with with_key(client, limited.key):
        stolen = {"worker": {**WORKER, "id": "w2"}, "types": [{**pay, "queue": "sums"}]}
        problem(await client.post("/v1/workers", json=stolen), 403, "forbidden")
    assert {one["name"]: one["queue"] for one in (await client.get("/v1/types")).json()["types"]}["pay"] == "pay"


async def test_a_fleet_that_a_limited_worker_key_declares_serves_no_queue_of_others(
    client: Client, engine: Engine
) -> None:
    limited = await create_key(engine, KeyScope.WORKER, queues=["sums"])
    fleet = {"max": 3, "queues": ["sums", "other"]}
    with with_key(client, limited.key):
        joined = {"worker": {**WORKER, "id": "w2"}, "types": [{**ADD, "fleet": fleet}]}
        assert (await client.post("/v1/workers", json=joined)).status_code == 200
    fleets = {one["name"]: one["queues"] for one in (await client.get("/v1/fleets")).json()["fleets"]}
    assert fleets == {"default": None, "sums": ["sums"]}


async def test_a_limited_worker_key_makes_sees_and_changes_only_schedules_of_its_queues(
    client: Client, engine: Engine
) -> None:
    limited = await create_key(engine, KeyScope.WORKER, KeyScope.SCHEDULES, queues=["sums"])
    mine = {"name": "mine", "type": "add", "params": {"a": 1}, "interval": 60}
    theirs = {"name": "theirs", "type": "other", "interval": 60, "params": {"secret": 1}}
    assert (await client.post("/v1/schedules", json=theirs)).status_code == 201
    with with_key(client, limited.key):
        assert (await client.post("/v1/schedules", json=mine)).status_code == 201
        own = {**mine, "name": "theirs", "on_conflict": "replace"}
        for method, path, body in (
            ("POST", "", {**theirs, "name": "another"}),
            ("POST", "", own),
            ("PATCH", "/theirs", {"interval": 90}),
            ("PATCH", "/mine", {"type": "other", "params": {}}),
            ("POST", "/theirs/pause", {}),
            ("POST", "/theirs/trigger", {}),
            ("DELETE", "/theirs", None),
            ("GET", "/theirs", None),
            ("GET", "/theirs/ticks", None),
        ):
            problem(await client.request(method, f"/v1/schedules{path}", json=body), 403, "forbidden")
        listed = (await client.get("/v1/schedules")).json()["schedules"]
        assert [one["name"] for one in listed] == ["mine"]
    assert (await client.get("/v1/schedules/theirs")).json()["interval"] == 60


async def test_a_lent_key_lets_in_here_and_is_kept_nowhere(client: Client, engine: Engine) -> None:
    lent = engine.keys.lend("beside", (KeyScope.WORKER,))
    with with_key(client, lent):
        assert (await client.post("/v1/workers", json=JOIN)).status_code == 200
        problem(await client.get("/v1/jobs"), 403, "forbidden")
    assert "beside" not in {one["name"] for one in await listed(client)}


async def test_the_sdk_shows_its_key_and_raises_what_a_wrong_one_is_answered(app: ASGIApp, engine: Engine) -> None:
    import httpx2

    def sdk(key: str) -> AsyncClient:
        inner = httpx2.ASGITransport(app=app)
        return AsyncClient(transport=AsyncHttpTransport("http://localhost", inner, key=key))

    async with sdk((await create_key(engine, KeyScope.ADMIN)).key) as admin:
        key = await admin.create_key("shop", ["jobs:read"], lifetime=60)
        assert key.id in {one.id for one in await admin.keys()}
        heir = await admin.rotate_key(key.id, grace=0)
        await admin.revoke_key(heir.id)
    for gone in (key, heir):
        async with sdk(gone.key) as shop:
            with pytest.raises(Unauthorized, match="unknown, expired or revoked"):
                await shop.queues()


async def test_a_server_needs_an_admin_key_that_is_good_before_it_listens_beyond_this_machine(engine: Engine) -> None:
    server = ServerSettings(host=EVERYWHERE, data="/var/lib/my jobs")
    await create_key(engine, *(scope for scope in KeyScope if scope is not KeyScope.ADMIN))
    await create_revoked_key(engine, KeyScope.ADMIN)
    await create_expired_key(engine, KeyScope.ADMIN)
    with pytest.raises(InvalidSetting) as refused:
        await refuse_unguarded(server, engine.keys)
    assert "'0.0.0.0' is not a loopback address" in refused.value.message
    assert "penstock keys create --name ops --scope admin --direct --data '/var/lib/my jobs'" in refused.value.message
    with pytest.raises(InvalidSetting, match=r"^server\.keys: "):
        await refuse_unguarded(ServerSettings(keys="required"), engine.keys)
    await refuse_unguarded(ServerSettings(), engine.keys)
    await create_key(engine, KeyScope.ADMIN)
    await refuse_unguarded(server, engine.keys)


class TestOnLoopback:
    """A server that needs no keys, and honours those that are shown."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, server=ServerSettings())

    async def test_no_key_is_needed(self, client: Client) -> None:
        with with_key(client, None):
            assert (await client.get("/v1/jobs")).status_code == 200
            assert {} in (await client.get("/openapi.json")).json()["paths"]["/v1/jobs"]["get"]["security"]

    async def test_a_wrong_key_is_not_taken_for_none(self, client: Client, engine: Engine) -> None:
        for wrong in (FOREIGN, "hunter2", (await create_expired_key(engine, KeyScope.ADMIN)).key):
            with with_key(client, wrong):
                problem(await client.get("/v1/jobs"), 401, "unauthorized")

    async def test_a_key_is_held_to_its_scopes(self, client: Client, engine: Engine) -> None:
        with with_key(client, (await create_key(engine, KeyScope.JOBS_READ)).key):
            problem(await client.post("/v1/jobs", json={"type": "other"}), 403, "forbidden")

    async def test_what_a_proxy_sends_for_itself_is_no_key(self, client: Client) -> None:
        with with_key(client, None):
            answer = await client.get("/v1/jobs", headers={"authorization": "Basic b3BzOmh1bnRlcjI="})
        assert answer.status_code == 200
