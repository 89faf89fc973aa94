"""Operation × scope once more, by what the answers hold: a key learns what its scope is for, whatever it may do."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.client import AsyncClient
from penstock.client.http import AsyncHttpTransport
from penstock.config import ServerSettings, Settings
from penstock.config.event_settings import WebhookSettings
from penstock.engine import Engine
from penstock.model.errors import Forbidden, StoreUnavailable
from penstock.model.keys import KeyScope
from tests.http.api_calls import ADD, OTHER, WORKER, Client, Json, claim, problem, settle, submit
from tests.http.api_keys import client_of, create_key, with_key

SECRETS = {
    name: f"secret-{name}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    for name in (
        "params",
        "result",
        "error",
        "progress",
        "tag",
        "log",
        "input",
        "output",
        "host",
        "description",
        "schedule",
        "schedule-tag",
        "environment",
        "sink",
        "signing",
    )
}
NEVER_TOLD = {"environment", "signing"}
OF_JOBS = {"params", "result", "error", "progress", "tag", "log", "input", "output"}
LEARNED: Mapping[KeyScope, set[str]] = {
    KeyScope.JOBS_READ: OF_JOBS | {"host", "description", "schedule", "schedule-tag"},
    KeyScope.JOBS_WRITE: set(),
    KeyScope.JOBS_CANCEL: set(),
    KeyScope.SCHEDULES: {"schedule", "schedule-tag"},
    KeyScope.QUEUES: set(),
    KeyScope.SUBSCRIPTIONS: {"sink"},
    KeyScope.WORKER: {"params", "tag", "input"},
    KeyScope.SCHEDULER: set(),
    KeyScope.ADMIN: set(SECRETS) - NEVER_TOLD,
}
ORDER: Json = {"params": {"x": SECRETS["params"]}, "tags": [SECRETS["tag"]], "retry_policy": "none"}
METHODS = ("get", "post", "put", "patch", "delete")


class World(Struct, frozen=True):
    """What there is to be learned: jobs by what became of them, and how to ask for one of them again."""

    jobs: tuple[str, ...]
    keyed: Json


@pytest.fixture
def settings(settings: Settings) -> Settings:
    webhooks = WebhookSettings(allow=("127.0.0.0/8",), http=True)
    return replace(settings, server=ServerSettings(keys="required"), webhooks=webhooks)


@pytest.fixture
async def client(app: ASGIApp, engine: Engine) -> AsyncIterator[Client]:
    async with client_of(app) as client:
        client.headers["authorization"] = f"Bearer {(await create_key(engine, KeyScope.ADMIN)).key}"
        yield client


@pytest.fixture
async def world(client: Client) -> World:
    fleet = {"min": 0, "max": 1, "environment": {"PASSWORD": SECRETS["environment"]}}
    other = {**OTHER, "description": SECRETS["description"], "fleet": fleet}
    joining = {"worker": {**WORKER, "host": SECRETS["host"]}, "types": [ADD, other]}
    (await client.post("/v1/workers", json=joining)).raise_for_status()
    upload = (await client.post("/v1/uploads", content=SECRETS["input"].encode())).json()["id"]
    keyed: Json = {"type": "other", **ORDER, "inputs": {"letter": upload}, "idempotency_key": "order-1"}
    done = await submit(client, **keyed)
    failed, waiting = [await submit(client, **ORDER) for _ in range(2)]
    claims = {one["job"]: one for one in await claim(client, limit=2)}
    await _run(client, claims[done["id"]])
    error = {"code": "raised", "message": SECRETS["error"]}
    await settle(client, claims[failed["id"]], error=error)
    assert (await client.get(f"/v1/jobs/{failed['id']}")).json()["state"] == "failed"
    asks = {"params": {"x": SECRETS["schedule"]}, "tags": [SECRETS["schedule-tag"]]}
    nightly = {"type": "other", "interval": 3600, **asks}
    (await client.put("/v1/schedules/nightly", json=nightly)).raise_for_status()
    signing = f"whsec_{base64.b64encode(SECRETS['signing'].encode()).decode()}"
    hook = {
        "name": "orders",
        "sink": {"kind": "webhook", "url": f"http://127.0.0.1:9/{SECRETS['sink']}"},
        "secret": signing,
    }
    (await client.post("/v1/subscriptions", json=hook)).raise_for_status()
    return World((done["id"], failed["id"], waiting["id"]), keyed)


async def _run(client: Client, claimed: Json) -> None:
    """An attempt that leaves everything behind that one can."""
    lease = {"job": claimed["job"], "fence": claimed["fence"]}
    at = "2026-01-01T00:00:00Z"
    line = {"at": at, "stream": "stdout", "text": SECRETS["log"]}
    (await client.post("/v1/workers/w1/log", json={"entries": [{**lease, "lines": [line]}]})).raise_for_status()
    body = SECRETS["output"].encode()
    headers = {"digest-sha256": hashlib.sha256(body).hexdigest()}
    path = f"/v1/workers/w1/outputs/{lease['job']}/{lease['fence']}/0"
    link = (await client.put(path, content=body, headers=headers)).json()
    outputs = [{"name": "report", "object": link}]
    progress = {"fraction": 1.0, "message": SECRETS["progress"]}
    renewal = {"worker": {**WORKER, "host": SECRETS["host"]}, "leases": [{**lease, "progress": progress}]}
    (await client.post("/v1/workers/w1/renew", json=renewal)).raise_for_status()
    assert await settle(client, claimed, SECRETS["result"], outputs=outputs) == {"refused": []}


def bodies(world: World) -> Mapping[str, Any]:
    """A body for each operation that would tell something, by its name in the document."""
    lease = {"job": world.jobs[0], "fence": 1}
    return {
        "submit_job": world.keyed,
        "submit_batch": {"jobs": [world.keyed]},
        "claim_jobs": {"types": ["other"], "limit": 9, "wait_seconds": 0},
        "settle_jobs": {"outcomes": [{**lease, "result": 1}]},
        "renew_leases": {"worker": WORKER, "leases": [lease]},
        "release_leases": {"leases": [lease]},
        "append_log": {"entries": [{**lease, "lines": []}]},
        "join": {"worker": WORKER, "types": [ADD]},
        "announce_upload": {"digest": "0" * 64, "size": 1},
        "announce_output": {"digest": "0" * 64, "size": 1},
        "create_schedule": {"name": "nightly", "type": "other", "interval": 3600, "on_conflict": "skip"},
        "preview_unsaved": {"interval": 3600},
        "update_schedule": {"priority": 3},
        "backfill_schedule": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"},
        "read_due": {"slot_seconds": 86_400, "limit": 9},
        "apply_decisions": {"decisions": []},
        "create_subscription": {"name": "orders", "sink": {"kind": "webhook", "url": "http://127.0.0.1:9/"}},
        "update_subscription": {"batch": 2},
        "replay_events": {"dead": True},
    }


async def everything(client: Client, world: World) -> AsyncIterator[str]:
    """What every operation answers to this client, asked about what there is; with what stands in base64 decoded."""
    document = (await client.get("/openapi.json")).json()
    given = bodies(world)
    for method, path, one in operations(document):
        body = given.get(one["operationId"], {}) if "requestBody" in one else None
        for url in urls(path, world):
            answer = await client.request(method, url, json=body)
            yield f"{answer.headers} {answer.text}"
            yield from_base64(answer.text)


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Those that read first, and those that remove last."""
    for method in METHODS:
        for path, there in document["paths"].items():
            if method in there:
                yield method, path, there[method]


def urls(path: str, world: World) -> list[str]:
    parts = {"queue": "other", "worker": "w1", "schedule": "nightly", "scheduler": "s1", "type": "other"}
    parts |= {"fence": "1", "number": "0", "key": "aaaaaaaa", "shard": "0", "fleet": "other", "subscription": "orders"}
    names = {"inputs": "letter", "outputs": "report"}
    parts["name"] = next((name for part, name in names.items() if f"/{part}/" in path), "x")
    parts |= dict.fromkeys(set(re.findall(r"{(\w+)}", path)) - {*parts, "job"}, "x")
    jobs = world.jobs if "{job}" in path else ("",)
    return [path.format(**parts, job=job) for job in jobs]


def from_base64(text: str) -> str:
    return " ".join(
        base64.b64decode(word + "=" * (-len(word) % 4), validate=False).decode("latin-1")
        for word in re.findall(r"[A-Za-z0-9+/]{16,}", text)
        if len(word) % 4 != 1
    )


@pytest.mark.parametrize("scope", KeyScope)
async def test_a_key_of_one_scope_learns_what_that_is_for_and_nothing_else(
    scope: KeyScope, client: Client, engine: Engine, world: World
) -> None:
    with with_key(client, (await create_key(engine, scope)).key):
        told = " ".join([text async for text in everything(client, world)])
    assert {name for name, secret in SECRETS.items() if secret in told} == LEARNED[scope]


async def test_every_operation_that_takes_json_is_asked_properly(client: Client, world: World) -> None:
    """With a body that is refused for its shape an operation would tell nothing to anyone."""
    document = (await client.get("/openapi.json")).json()
    given, wrong = bodies(world), []
    for method, path, one in operations(document):
        if one["operationId"] in given:
            answer = await client.request(method, urls(path, world)[0], json=given[one["operationId"]])
            wrong += [] if answer.status_code < 300 or answer.status_code == 409 else [(path, answer.text)]
    assert wrong == []


TIMES = {"scheduled_at", "created_at", "started_at", "completed_at", "expires_at", "tick_at"}


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        (KeyScope.JOBS_CANCEL, "/v1/jobs/{done}/cancel"),
        (KeyScope.JOBS_CANCEL, "/v1/jobs/{waiting}/cancel"),
        (KeyScope.JOBS_WRITE, "/v1/jobs/{done}/retry"),
        (KeyScope.JOBS_WRITE, "/v1/jobs"),
        (KeyScope.SCHEDULES, "/v1/schedules/nightly/trigger"),
    ],
)
async def test_without_reading_an_answer_holds_id_state_and_times(
    scope: KeyScope, path: str, client: Client, engine: Engine, world: World
) -> None:
    url = path.format(done=world.jobs[0], waiting=world.jobs[2])
    body = world.keyed if path == "/v1/jobs" else None
    with with_key(client, (await create_key(engine, scope)).key):
        answer = await client.post(url, json=body)
    assert answer.is_success, answer.text
    item = answer.json()
    assert {"id", "state", "cancel_requested", "omitted", *TIMES} | set(item["omitted"]) == set(item)
    told = {name: item[name] for name in item["omitted"] if item[name]}
    assert told.keys() <= {"retry_policy"}
    with with_key(client, (await create_key(engine, scope, KeyScope.JOBS_READ)).key):
        full = (await client.post(url, json=body)).json()
    assert (full["type"], full.get("omitted")) == ("other", [])


async def test_a_queue_is_paused_without_telling_what_is_in_it(client: Client, engine: Engine, world: World) -> None:
    with with_key(client, (await create_key(engine, KeyScope.QUEUES)).key):
        for verb, paused in (("pause", True), ("resume", False)):
            told = (await client.post(f"/v1/queues/other/{verb}")).json()
            assert told == {"name": "other", "paused": paused, "jobs": {}, "oldest_seconds": None}
    with with_key(client, (await create_key(engine, KeyScope.QUEUES, KeyScope.JOBS_READ)).key):
        assert (await client.post("/v1/queues/other/pause")).json()["jobs"]["failed"] == 1


async def test_the_sdk_adds_cancels_and_retries_without_reading(app: ASGIApp, engine: Engine, world: World) -> None:
    import httpx2

    key = (await create_key(engine, KeyScope.JOBS_WRITE, KeyScope.JOBS_CANCEL)).key
    transport = AsyncHttpTransport("http://localhost", httpx2.ASGITransport(app=app), key=key)
    async with AsyncClient(transport=transport, patience=0) as sdk:
        job = await sdk.submit("other", {"x": 1})
        assert (job.state, job.result, "result" in job.omitted) == ("queued", None, True)
        assert (await sdk.cancel(job.id)).state == "cancelled"
        assert (await sdk.retry(job.id)).id != job.id
        with pytest.raises(Forbidden):
            await sdk.get(job.id)


async def test_a_scheduler_cancels_only_jobs_of_the_schedule_that_it_decides_about(
    client: Client, engine: Engine, world: World
) -> None:
    decision = {"name": "nightly", "version": 1, "expected_tick_at": None, "next_tick_at": None}
    with with_key(client, (await create_key(engine, KeyScope.SCHEDULER)).key):
        body = {"decisions": [{**decision, "cancel": [world.jobs[2]]}]}
        problem(await client.post("/v1/schedulers/s1/tick", json=body), 403, "forbidden")
    assert (await client.get(f"/v1/jobs/{world.jobs[2]}")).json()["state"] == "queued"


async def test_a_limited_worker_key_does_not_learn_which_queue_a_job_is_in(
    client: Client, engine: Engine, world: World
) -> None:
    with with_key(client, (await create_key(engine, KeyScope.WORKER, queues=["sums"])).key):
        answer = await client.get(f"/v1/jobs/{world.jobs[0]}/inputs/letter")
    assert "other" not in problem(answer, 403, "forbidden")


async def test_why_a_server_is_not_ready_is_told_to_keys_that_may_look(client: Client, engine: Engine) -> None:
    await engine.catalog.read()
    await engine.store.close()
    with with_key(client, None):
        vague = problem(await client.get("/readyz"), 503, StoreUnavailable.code)
    assert ".db" not in vague
    assert ".db" in problem(await client.get("/readyz"), 503, StoreUnavailable.code)
