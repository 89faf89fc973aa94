"""Fleets over HTTP: how they are and why, and what operators change; who may ask; and what workers may declare."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.keys import KeyScope
from penstock.model.wire.fleets import FleetDecision, FleetRecord, Look
from tests.http.api_calls import ADD, OTHER, WORKER, Client, Json, claim, problem, submit
from tests.http.api_keys import client_of, create_key, with_key

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LOOK = Look(backlog=3, running=2, starting=1, idle=0, busy=2, draining=0, lost=0, unknown={"arrival_rate": "pruned"})
DECISION = FleetDecision(at=NOW, desired=3, start=1, reason="start 1: 3 due", reading=LOOK)
OWN: Json = {"max": 4, "target_wait_seconds": 2.0, "environment": {"TOKEN": "geheim"}, "image": "shop:1"}


async def declare_own(client: Client, **fleet: object) -> None:
    body = {"worker": WORKER, "types": [ADD, {**OTHER, "fleet": {**OWN, **fleet}}]}
    (await client.post("/v1/workers", json=body)).raise_for_status()


async def record(engine: Engine) -> None:
    told = FleetRecord(by="here", latest=DECISION, decisions=(DECISION,), started=9, stopped=6, starts=4, stops=2)
    await engine.fleets.record({"default": told})


async def test_there_is_always_the_default_fleet(client: Client) -> None:
    (fleet,) = (await client.get("/v1/fleets")).json()["fleets"]
    assert (fleet["name"], fleet["source"], fleet["queues"], fleet["fleet"]["max"]) == ("default", "default", None, 10)
    assert (fleet["desired"], fleet["workers"], fleet["latest"]) == (None, {}, None)


async def test_a_job_type_s_own_fleet_is_listed_and_taken_from_the_default(client: Client) -> None:
    await declare_own(client)
    default, own = (await client.get("/v1/fleets")).json()["fleets"]
    assert default["except_queues"] == ["other"]
    assert (own["name"], own["source"], own["queues"]) == ("other", "job type", ["other"])
    assert (own["fleet"]["max"], own["fleet"]["target_wait_seconds"]) == (4, 2.0)


async def test_the_environment_of_a_fleet_is_shown_to_nobody(client: Client) -> None:
    await declare_own(client)
    for path in ("/v1/fleets", "/v1/fleets/other", "/v1/types"):
        answer = await client.get(path)
        assert "geheim" not in answer.text
        assert '"TOKEN":"***"' in answer.text.replace(" ", "")


async def test_what_the_autoscaler_saw_and_decided_can_be_read(client: Client, engine: Engine) -> None:
    await record(engine)
    shown = (await client.get("/v1/fleets/default")).json()
    assert (shown["desired"], shown["reason"], shown["autoscaler"]) == (3, "start 1: 3 due", "here")
    assert shown["workers"] == {"starting": 1, "idle": 0, "busy": 2, "draining": 0, "lost": 0}
    (decision,) = shown["decisions"]
    assert (decision["at"], decision["start"], decision["reading"]["backlog"]) == ("2030-01-01T00:00:00Z", 1, 3)
    assert decision["reading"]["unknown"] == {"arrival_rate": "pruned"}
    (listed,) = (await client.get("/v1/fleets")).json()["fleets"]
    assert (listed["desired"], listed["decisions"]) == (3, [])


async def test_bounds_and_policy_are_changed_while_everything_runs(client: Client) -> None:
    await declare_own(client)
    answer = await client.patch("/v1/fleets/other", json={"max": 40, "min": 2, "target_wait_seconds": "500ms"})
    fleet = answer.json()["fleet"]
    assert (fleet["min"], fleet["max"], fleet["target_wait_seconds"], fleet["image"]) == (2, 40, 0.5, "shop:1")
    fleet = (await client.patch("/v1/fleets/other", json={"policy": {"type": "depth"}})).json()["fleet"]
    assert (fleet["policy"]["type"], fleet["target_wait_seconds"], fleet["max"]) == ("depth", None, 40)
    fleet = (await client.patch("/v1/fleets/other", json={"reset": True})).json()["fleet"]
    assert (fleet["max"], fleet["target_wait_seconds"], fleet["policy"]) == (4, 2.0, None)


async def test_what_cannot_be_is_refused_and_changes_nothing(client: Client) -> None:
    assert "min (11) is above max (10)" in problem(
        await client.patch("/v1/fleets/default", json={"min": 11}), 422, "invalid"
    )
    for body in ({"max": 0}, {"target_wait_seconds": "soon"}, {"image": "evil:1"}, {"command": ["sh"]}):
        problem(await client.patch("/v1/fleets/default", json=body), 422, "invalid")
    problem(await client.post("/v1/fleets/default/scale", json={"count": 11}), 422, "invalid")
    problem(await client.post("/v1/fleets/default/scale", json={"count": "all"}), 422, "invalid")
    assert "there are: default" in problem(await client.get("/v1/fleets/nowhere"), 404, "not_found")
    problem(await client.patch("/v1/fleets/nowhere", json={"reset": True}), 404, "not_found")
    for verb in ("pause", "resume"):
        problem(await client.post(f"/v1/fleets/nowhere/{verb}"), 404, "not_found")
    (fleet,) = (await client.get("/v1/fleets")).json()["fleets"]
    assert (fleet["fleet"]["max"], fleet["count"], fleet["paused"]) == (10, None, False)


async def test_a_fleet_is_paused_resumed_and_scaled_by_hand(client: Client) -> None:
    assert (await client.post("/v1/fleets/default/pause")).json()["paused"] is True
    scaled = (await client.post("/v1/fleets/default/scale", json={"count": 3})).json()
    assert (scaled["count"], scaled["paused"]) == (3, True)
    assert (await client.post("/v1/fleets/default/resume")).json()["paused"] is False
    assert (await client.post("/v1/fleets/default/scale", json={"count": "auto"})).json()["count"] is None


async def test_fleets_are_measured_once_they_were_looked_at(client: Client, engine: Engine) -> None:
    assert "penstock_fleet_desired{" not in (await client.get("/metrics")).text
    await record(engine)
    lines = (await client.get("/metrics")).text.splitlines()
    assert 'penstock_fleet_desired{fleet="default"} 3' in lines
    assert 'penstock_fleet_workers{fleet="default",state="busy"} 2' in lines
    assert 'penstock_fleet_decisions_total{fleet="default",action="start"} 4' in lines
    assert 'penstock_fleet_decisions_total{fleet="default",action="stop"} 2' in lines


async def test_a_worker_takes_no_jobs_of_queues_it_excepts(client: Client) -> None:
    await submit(client)
    body = {"types": ["add", "other"], "limit": 9, "wait_seconds": 0, "except_queues": ["other"]}
    assert (await client.post("/v1/workers/w1/claim", json=body)).json()["claims"] == []
    assert len(await claim(client)) == 1


class TestWithKeys:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, server=ServerSettings(keys="required"))

    @pytest.fixture
    async def client(self, app: ASGIApp) -> AsyncIterator[Client]:
        async with client_of(app) as client:
            yield client

    async def test_a_worker_key_says_how_many_but_not_what_is_started_elsewhere(
        self, client: Client, engine: Engine
    ) -> None:
        with with_key(client, (await create_key(engine, KeyScope.WORKER)).key):
            await declare_own(client, command=["sh", "-c", "evil"])
        fleet = (await engine.fleets.plan())["other"].fleet
        assert (fleet.max, fleet.target_wait) == (4, 2.0)
        assert (fleet.image, fleet.command, fleet.environment) == (None, None, {})

    async def test_a_worker_key_cannot_ask_for_more_workers_than_the_operator_allows(
        self, client: Client, engine: Engine
    ) -> None:
        with with_key(client, (await create_key(engine, KeyScope.WORKER, queues=["other"])).key):
            await declare_own(client, min=10_000, max=10_000)
        with with_key(client, (await create_key(engine, KeyScope.ADMIN)).key):
            item = (await client.get("/v1/fleets/other")).json()
        assert (item["fleet"]["min"], item["fleet"]["max"]) == (100, 100)
        assert "fleet.declared_max" in item["faults"][0]

    async def test_an_admin_key_may_say_both(self, client: Client, engine: Engine) -> None:
        with with_key(client, (await create_key(engine, KeyScope.ADMIN)).key):
            await declare_own(client)
        fleet = (await engine.fleets.plan())["other"].fleet
        assert (fleet.image, fleet.environment) == ("shop:1", {"TOKEN": "geheim"})
