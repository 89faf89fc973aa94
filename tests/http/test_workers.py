"""The worker's moves over HTTP."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import ASGIApp

from penstock.config import Settings
from penstock.engine import Engine
from tests.http.api_calls import UNKNOWN_JOB, WORKER, Client, Json, RawRequest, claim, job, problem, settle, submit
from tests.services.engine_steps import dispatcher

NAIVE = "2026-01-01T00:00:00"
JSON = [(b"content-type", b"application/json")]


def waiting_claim(app: ASGIApp) -> RawRequest:
    body = {"types": ["other"], "limit": 5, "wait_seconds": 30}
    return RawRequest(app, "POST", "/v1/workers/w1/claim", JSON).says(json.dumps(body).encode())


async def test_a_worker_that_joined_is_listed_until_it_leaves(client: Client) -> None:
    (listed,) = (await client.get("/v1/workers")).json()["workers"]
    assert (listed["id"], listed["state"], listed["types"]) == ("w1", "ready", ["add", "other"])
    assert (await client.delete("/v1/workers/w1")).status_code == 204
    assert (await client.get("/v1/workers")).json() == {"workers": []}


async def test_a_worker_that_is_asked_to_drain_is_told_with_its_renewals(client: Client) -> None:
    async def told() -> Any:
        answer = await client.post("/v1/workers/w1/renew", json={"worker": WORKER, "leases": []})
        return answer.json()["drain"]

    assert await told() is None
    asked = await client.post("/v1/workers/w1/drain", json={})
    assert (asked.status_code, asked.json()["id"]) == (200, "w1")
    assert await told() == {"patience_seconds": None}
    await client.post("/v1/workers/w1/drain", json={"patience_seconds": 300})
    assert 290 < (await told())["patience_seconds"] <= 300


async def test_a_drain_is_asked_of_workers_that_are_there(client: Client) -> None:
    problem(await client.post("/v1/workers/w2/drain", json={}), 404, "not_found")
    problem(await client.post("/v1/workers/w1/drain", json={"patience_seconds": -1}), 422, "invalid")
    problem(await client.post("/v1/workers/w1/drain", json={"patience": 1}), 422, "invalid")


async def test_joining_tells_how_leases_work_and_declares_the_types(client: Client) -> None:
    answer = await client.post("/v1/workers", json={"worker": WORKER, "types": []})
    assert answer.json() == {"lease_seconds": 15.0, "heartbeat_seconds": 5.0}
    assert [one["name"] for one in (await client.get("/v1/types")).json()["types"]] == ["add", "other"]


async def test_a_waiting_claim_is_answered_the_moment_there_is_work(app: ASGIApp, client: Client) -> None:
    raw = waiting_claim(app)
    waiting = asyncio.create_task(raw.run())
    await raw.listening.wait()
    item = await submit(client)
    await asyncio.wait_for(waiting, 5)
    (claimed,) = json.loads(raw.sent[1]["body"])["claims"]
    assert (claimed["job"], claimed["fence"], claimed["attempt"]) == (item["id"], 1, 1)


async def test_a_claim_without_work_ends_with_none(client: Client) -> None:
    assert await claim(client, wait=0.01) == []


async def test_a_worker_that_hangs_up_while_it_waits_takes_no_job_with_it(app: ASGIApp, client: Client) -> None:
    raw = waiting_claim(app)
    waiting = asyncio.create_task(raw.run())
    await raw.listening.wait()
    await asyncio.wait_for(asyncio.gather(waiting, _hang_up(raw)), 5)
    assert raw.sent == []
    item = await submit(client)
    (claimed,) = await claim(client)
    assert (claimed["job"], claimed["fence"]) == (item["id"], 1)


async def test_jobs_claimed_for_a_worker_that_has_gone_are_given_back_at_once(app: ASGIApp, client: Client) -> None:
    item = await submit(client)
    raw = waiting_claim(app).hangs_up()
    await asyncio.wait_for(raw.run(), 5)
    assert raw.sent == []
    after = await job(client, item["id"])
    assert (after["state"], after["worker"]) == ("queued", None)


async def test_a_claim_cut_off_by_the_server_gives_its_jobs_back(
    app: ASGIApp, client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await submit(client)
    claims_made = asyncio.Event()
    monkeypatch.setattr(engine.worker_api, "claim", _slow_to_return(engine.worker_api.claim, claims_made))
    serving = asyncio.create_task(waiting_claim(app).run())
    await claims_made.wait()
    serving.cancel()
    await asyncio.wait({serving}, timeout=5)
    assert (await job(client, item["id"]))["state"] == "queued"


async def test_renewing_keeps_leases_and_says_what_is_lost_or_asked_to_cancel(client: Client) -> None:
    items = [await submit(client) for _ in range(3)]
    claims = {one["job"]: one for one in await claim(client)}
    leases = [{"job": item["id"], "fence": claims[item["id"]]["fence"]} for item in items]
    leases[0]["progress"] = {"fraction": 0.5, "message": "half"}
    leases[1]["fence"] += 1
    await client.post(f"/v1/jobs/{items[2]['id']}/cancel")
    answer = await client.post("/v1/workers/w1/renew", json={"worker": {**WORKER, "running": 3}, "leases": leases})
    kept, lost, asked = answer.json()["renewals"]
    assert (kept.get("loss"), lost["loss"], asked["cancel"]) == (None, "lost", True)
    assert (await job(client, items[0]["id"]))["progress"] == {"fraction": 0.5, "message": "half"}


async def test_a_released_job_is_queued_again_and_its_old_fence_is_refused(client: Client, engine: Engine) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    lease = {"job": claimed["job"], "fence": claimed["fence"]}
    assert (await client.post("/v1/workers/w1/release", json={"leases": [lease]})).json() == {"refused": []}
    assert (await job(client, item["id"]))["state"] == "queued"
    await dispatcher(engine).step()
    (again,) = await claim(client)
    assert (again["attempt"], again["fence"]) == (1, 2)
    assert [one["loss"] for one in (await settle(client, claimed))["refused"]] == ["lost"]


async def test_an_error_is_recorded_and_tried_again(client: Client) -> None:
    item = await submit(client, retry_policy={"kind": "fixed", "max_attempts": 2, "delay_seconds": 60, "jitter": False})
    (claimed,) = await claim(client)
    await settle(client, claimed, error={"code": "raised", "message": "no luck"})
    after = await job(client, item["id"])
    assert (after["state"], after["error"]["message"]) == ("scheduled", "no luck")


async def test_what_a_job_wrote_is_read_as_json_and_as_text(client: Client) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    lines = [
        {"at": "2026-01-01T00:00:00Z", "stream": "stdout", "text": "one"},
        {"at": "2026-01-01T00:00:01.5Z", "stream": "stderr", "text": "two"},
    ]
    entry = {"job": claimed["job"], "fence": claimed["fence"], "lines": lines}
    assert (await client.post("/v1/workers/w1/log", json={"entries": [entry]})).json() == {"refused": []}
    url = f"/v1/jobs/{item['id']}/logs"
    page = (await client.get(url, params={"limit": 1})).json()
    assert [line["text"] for line in page["lines"]] == ["one"]
    rest = (await client.get(url, params={"after": page["position"]})).json()
    assert [line["text"] for line in rest["lines"]] == ["two"]
    text = await client.get(url, headers={"Accept": "text/plain"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["log-position"] == str(rest["position"])
    assert [line.split()[-1] for line in text.text.splitlines()] == ["one", "two"]


@pytest.mark.parametrize(
    ("move", "body"),
    [
        ("settle", {"outcomes": [{"job": "nonsense", "fence": 1}]}),
        ("release", {"leases": [{"job": "nonsense", "fence": 1}]}),
        ("renew", {"worker": WORKER, "leases": [{"job": "x" * 36, "fence": 1}]}),
        ("renew", {"worker": {**WORKER, "id": "w2"}, "leases": []}),
        ("log", {"entries": [{"job": "", "fence": 1, "lines": []}]}),
        ("log", {"entries": [{"job": UNKNOWN_JOB, "fence": 1, "lines": [{"at": NAIVE, "stream": "out", "text": ""}]}]}),
        ("renew", {"worker": {**WORKER, "started_at": NAIVE}, "leases": []}),
        ("claim", {"types": ["other"], "limit": 0}),
        ("claim", {"types": ["other"], "limit": 1, "wait": 5}),
    ],
)
async def test_a_move_that_does_not_fit_is_refused(client: Client, move: str, body: Json) -> None:
    problem(await client.post(f"/v1/workers/w1/{move}", json=body), 422, "invalid")


async def test_moves_of_unknown_jobs_are_refused_one_by_one(client: Client) -> None:
    lease = {"job": UNKNOWN_JOB, "fence": 1}
    for move, body in (("settle", {"outcomes": [lease]}), ("release", {"leases": [lease]})):
        refused = (await client.post(f"/v1/workers/w1/{move}", json=body)).json()["refused"]
        assert [one["loss"] for one in refused] == ["gone"]


async def _hang_up(raw: RawRequest) -> None:
    raw.hangs_up()


def _slow_to_return(claim_jobs, claims_made: asyncio.Event):
    """Claims made, but not yet given to whoever asked."""

    async def slow(*arguments):
        claims = await claim_jobs(*arguments)
        claims_made.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return claims

    return slow


async def test_a_pattern_that_a_worker_declared_never_runs_in_the_server(client: Client) -> None:
    # With as many letters as here it takes tenths of a second, and twice that with each letter more.
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(x+)+y$"}}}
    slow = {"name": "slow", "queue": "slow", "params_schema": schema}
    (await client.post("/v1/workers", json={"worker": WORKER, "types": [slow]})).raise_for_status()
    await submit(client, "slow", params={"a": "x" * 22})


class TestLargeBodies:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings()

    async def test_a_declaration_may_have_256_kib(self, client: Client) -> None:
        schema = {"type": "object", "description": "x" * 256 * 1024}
        large = {"name": "large", "queue": "large", "params_schema": schema}
        answer = await client.post("/v1/workers", json={"worker": WORKER, "types": [large]})
        assert "'large'" in problem(answer, 413, "too_large")
        assert "large" not in {one["name"] for one in (await client.get("/v1/types")).json()["types"]}
