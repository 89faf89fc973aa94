"""Schedules over HTTP, and schedulers that reach the engine that way."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock.engine import Engine
from penstock.loop import run_service
from penstock.model.clock import SystemClock
from penstock.scheduler import Ticker
from penstock.scheduler.http_api import HttpSchedulerApi
from tests.http.api_calls import Client, Json, claim, problem

FAR = "2099-01-01T00:00:00Z"


async def create(client: Client, name: str = "s", status: int = 201, **more: object) -> Json:
    body = {"name": name, "type": "other", **({} if "cron" in more else {"interval": 3600}), **more}
    answer = await client.post("/v1/schedules", json=body)
    assert answer.status_code == status, answer.text
    item: Json = answer.json()
    return item


async def test_a_schedule_is_what_was_said(client: Client) -> None:
    said: Json = {
        "params": {"a": 1},
        "cron": "0 2 * * *",
        "timezone": "Europe/Berlin",
        "end_at": FAR,
        "jitter_seconds": 1.5,
        "queue": "q",
        "priority": 3,
        "timeout_seconds": 9.0,
        "tags": ["t"],
        "misfire": "run_all",
        "misfire_cap": 7,
        "misfire_grace_seconds": 2.0,
        "overlap": "queue_one",
    }
    item = await create(client, **said, retry_policy="fixed")
    assert {name: item[name] for name in said} == said
    assert item["retry_policy"]["kind"] == "fixed"
    assert (item["interval"], item["version"], item["paused"]) == (None, 1, False)
    assert (await client.get("/v1/schedules/s")).json() == item
    assert (await client.get("/v1/schedules")).json() == {"schedules": [item], "cursor": None}


async def test_on_conflict_decides_what_becomes_of_one_of_that_name(client: Client) -> None:
    await create(client)
    again = await client.post("/v1/schedules", json={"name": "s", "type": "other", "interval": 60})
    assert "on_conflict" in problem(again, 409, "conflict")
    assert (await create(client, status=200, interval=60, on_conflict="skip"))["interval"] == 3600
    assert (await create(client, status=200, interval=60, on_conflict="replace"))["interval"] == 60


async def test_put_makes_and_replaces_and_patch_changes(client: Client) -> None:
    made = await client.put("/v1/schedules/s", json={"type": "other", "interval": 60, "priority": 1})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/schedules/s")
    replaced = await client.put("/v1/schedules/s", json={"type": "other", "interval": 60})
    assert (replaced.status_code, replaced.json()["priority"]) == (200, None)
    changed = (await client.patch("/v1/schedules/s", json={"cron": "@hourly", "queue": "q"})).json()
    assert (changed["cron"], changed["interval"], changed["queue"], changed["timezone"]) == (
        "@hourly",
        None,
        "q",
        "UTC",
    )
    assert (await client.patch("/v1/schedules/s", json={"queue": None})).json()["queue"] is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "@daily", "timezone": "Nowhere"}, "timezone"),
        ({"interval": 0}, "interval: 0 s is too short; use 1 s or more"),
        ({"interval": -1}, "interval"),
        ({"start_at": FAR, "end_at": "2098-01-01T00:00:00Z"}, "end_at"),
        ({"misfire": "panic"}, "misfire"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_cannot_be_is_a_422_that_names_the_field(client: Client, said: Json, field: str) -> None:
    body = {"name": "s", "type": "other", **({} if "cron" in said else {"interval": 60}), **said}
    assert field in problem(await client.post("/v1/schedules", json=body), 422, "invalid")
    assert (await client.get("/v1/schedules")).json()["schedules"] == []


async def test_pause_resume_trigger_and_delete(client: Client) -> None:
    await create(client)
    assert (await client.post("/v1/schedules/s/pause")).json()["paused"] is True
    by_hand = await client.post("/v1/schedules/s/trigger")
    assert (by_hand.status_code, by_hand.json()["schedule"]) == (201, "s")
    assert (await client.post("/v1/schedules/s/resume")).json()["paused"] is False
    job = await client.post("/v1/schedules/s/trigger")
    assert (job.status_code, job.headers["location"]) == (201, f"/v1/jobs/{job.json()['id']}")
    assert (job.json()["schedule"], job.json()["interval"]) == ("s", 3600.0)
    tick, _ = (await client.get("/v1/schedules/s/ticks")).json()["ticks"]
    assert (tick["job"], tick["at"], tick["skipped"]) == (job.json()["id"], job.json()["tick_at"], None)
    assert (await client.delete("/v1/schedules/s")).status_code == 204
    for gone in ("", "/ticks", "/preview"):
        problem(await client.get(f"/v1/schedules/s{gone}"), 404, "not_found")


async def test_a_backfill_and_pages_of_its_history(client: Client) -> None:
    await create(client)
    now = datetime.now(UTC)
    span = {"from": (now - timedelta(hours=12)).isoformat(), "to": now.isoformat()}
    filled = (await client.post("/v1/schedules/s/backfill", json=span)).json()["ticks"]
    assert len(filled) == 12
    seen: list[Json] = []
    cursor = None
    while cursor is not None or not seen:
        page = (await client.get("/v1/schedules/s/ticks", params={"cursor": cursor} if cursor else {})).json()
        seen, cursor = seen + page["ticks"], page["cursor"]
    assert seen == filled[::-1]
    problem(await client.get("/v1/schedules/s/ticks", params={"cursor": "x"}), 422, "invalid")
    years = {"from": "2000-01-01T00:00:00Z", "to": now.isoformat()}
    assert "at most 1,000" in problem(await client.post("/v1/schedules/s/backfill", json=years), 422, "invalid")


async def test_previews_of_a_schedule_and_of_one_that_is_not(client: Client) -> None:
    await create(client, start_at=FAR)
    ticks = (await client.get("/v1/schedules/s/preview", params={"count": 2})).json()["ticks"]
    assert ticks == [FAR, "2099-01-01T01:00:00Z"]
    unsaved = {"cron": "0 0 29 2 *", "start_at": FAR, "count": 1}
    assert (await client.post("/v1/schedules/preview", json=unsaved)).json() == {"ticks": ["2104-02-29T00:00:00Z"]}
    assert "cron" in problem(await client.post("/v1/schedules/preview", json={"cron": "x"}), 422, "invalid")


async def test_interval_on_a_job_is_the_short_way(client: Client) -> None:
    answer = await client.post("/v1/jobs", json={"type": "other", "interval": 60})
    job = answer.json()
    assert (answer.status_code, job["interval"]) == (201, 60.0)
    schedule = (await client.get(f"/v1/schedules/{job['schedule']}")).json()
    assert (schedule["interval"], schedule["last_tick_at"]) == (60.0, job["tick_at"])
    assert [claimed["job"] for claimed in await claim(client)] == [job["id"]]


class OverClient:
    """A SchedulerConnection over the application in this process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        answer = await self._client.post(path, content=body, headers={"content-type": "application/json"})
        answer.raise_for_status()
        return answer.content

    async def close(self) -> None: ...


async def test_a_scheduler_over_http_fires_when_the_instant_has_come(client: Client) -> None:
    await create(client, interval=1)
    scheduler_api = HttpSchedulerApi(OverClient(client), "x-1")
    ticker = Ticker(scheduler_api, timedelta(seconds=1), SystemClock())
    running = asyncio.ensure_future(run_service("ticker", ticker.step))
    (claimed,) = await claim(client, wait=10)
    running.cancel()
    ticks = (await client.get("/v1/schedules/s/ticks")).json()["ticks"]
    job = (await client.get(f"/v1/jobs/{claimed['job']}")).json()
    assert job["tick_at"] == ticks[0]["at"]
    assert datetime.fromisoformat(job["created_at"]) >= datetime.fromisoformat(job["tick_at"])


async def test_a_waiting_scheduler_hears_of_a_change(client: Client, engine: Engine) -> None:
    scheduler_api = HttpSchedulerApi(OverClient(client), "x-1")
    seen = (await scheduler_api.due(timedelta(0), 1)).seen
    waiting = asyncio.ensure_future(scheduler_api.due(timedelta(0), 1, timedelta(seconds=30), seen))
    await asyncio.wait((waiting,), timeout=0.05)
    assert not waiting.done()
    await create(client)
    assert (await waiting).seen != seen


async def test_a_decision_that_is_stale_or_nonsense_changes_nothing(client: Client) -> None:
    await create(client)
    decision = {"name": "s", "version": 1, "expected_tick_at": None, "next_tick_at": None}
    answer = await client.post("/v1/schedulers/x/tick", json={"decisions": [decision, decision | {"name": "gone"}]})
    assert answer.json() == {"applied": [False, False]}
    naive = decision | {"next_tick_at": "2030-01-01T00:00:00"}
    assert "timezone" in problem(
        await client.post("/v1/schedulers/x/tick", json={"decisions": [naive]}), 422, "invalid"
    )
    cancel = decision | {"cancel": ["x"]}
    assert "job id" in problem(await client.post("/v1/schedulers/x/tick", json={"decisions": [cancel]}), 422, "invalid")
