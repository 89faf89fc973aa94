"""Events as pages and as streams: every change of every job, in order, without gap or double."""

from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.config import EventSettings, Settings
from penstock.engine import Engine
from penstock.model.keys import KeyId, KeyScope
from tests.http.api_calls import UNKNOWN_JOB, WORKER, Client, Json, claim, problem, settle, submit
from tests.http.api_keys import create_key
from tests.http.event_streams import open_stream

LIFE = [(None, "queued"), ("queued", "running"), ("running", "succeeded")]


async def run_job(client: Client, type: str = "other", **more: object) -> str:
    job: str = (await submit(client, type, **more))["id"]
    (claimed,) = await claim(client)
    await settle(client, claimed, 1)
    return job


async def page(client: Client, **query: object) -> Json:
    answer = await client.get("/v1/events", params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def moves(events: list[Json]) -> list[tuple[str | None, str]]:
    return [(event["before"], event["after"]) for event in events]


async def test_a_page_has_every_change_of_a_job_in_order(client: Client) -> None:
    job = await run_job(client)
    found = await page(client)
    assert moves(found["events"]) == LIFE
    assert [event["version"] for event in found["events"]] == [1, 2, 3]
    assert {event["id"] for event in found["events"]} == {f"evt_{job.replace('-', '')}_{n}" for n in (1, 2, 3)}
    assert (found["more"], found["missing_shards"]) == (False, [])
    assert "item" not in found["events"][0]


async def test_pages_go_on_after_the_cursor_without_gap_or_double(client: Client) -> None:
    body = {"jobs": [{"type": "other", "queue": f"q{number % 2}"} for number in range(7)]}
    assert (await client.post("/v1/jobs/batch", json=body)).status_code == 200
    seen: list[str] = []
    found = await page(client, limit=2)
    while found["events"]:
        assert len(found["events"]) <= 2
        seen += [event["id"] for event in found["events"]]
        assert found["more"] == (len(seen) < 7)
        found = await page(client, limit=2, after=found["cursor"])
    assert len(seen) == len(set(seen)) == 7
    await submit(client)
    assert len((await page(client, after=found["cursor"]))["events"]) == 1


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"type": "other"}, 3),
        ({"type": "add,other"}, 6),
        ({"type": "unheard-of"}, 0),
        ({"queue": "sums"}, 3),
        ({"state": "running,succeeded"}, 4),
        ({"tag": "red"}, 3),
        ({"tag": "blue"}, 0),
        ({"state": "succeeded", "tag": "red"}, 1),
        ({"since": "2029-01-01T00:00:00Z"}, 0),
        ({"since": "2020-01-01T00:00:00Z"}, 6),
    ],
)
async def test_a_page_has_only_the_events_that_are_asked_for(client: Client, query: Json, count: int) -> None:
    await run_job(client, "other", tags=["red"])
    await run_job(client, "add", params={"a": 1})
    assert len((await page(client, **query))["events"]) == min(count, 5)


async def test_items_come_with_the_events_that_ask_for_them(client: Client) -> None:
    job = await run_job(client)
    (event,) = (await page(client, state="succeeded", items="true"))["events"]
    assert (event["item"]["id"], event["item"]["state"], event["item"]["result"]) == (job, "succeeded", 1)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"state": "ready"}, "state: there is no state 'ready'; known: scheduled"),
        ({"state": ""}, "state: the list is empty"),
        ({"type": "a b"}, "type: 'a b' cannot be one"),
        ({"type": "a,,b"}, "type: '' cannot be one"),
        ({"queue": ""}, "queue: the list is empty"),
        ({"tag": "\n"}, "tag: "),
        ({"after": "yesterday"}, "after: not a cursor"),
        ({"after": "1-4096.1"}, "after: not a cursor"),
        ({"since": "0.5"}, "since: '0.5' is not an instant"),
        ({"since": "2026-01-01T00:00:00"}, "since: "),
        ({"colour": "red"}, "colour"),
    ],
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_what_cannot_be_asked_for_is_refused_by_name(client: Client, query: Json, told: str, accept: str) -> None:
    answer = await client.get("/v1/events", params=query, headers={"accept": accept})
    assert told in problem(answer, 422, "invalid")


async def test_an_unknown_state_is_answered_with_those_there_are(client: Client) -> None:
    answer = await client.get("/v1/events?state=done")
    assert "succeeded" in answer.json()["known"]


async def test_a_last_event_id_that_is_none_is_refused(client: Client) -> None:
    for path in ("/v1/events", f"/v1/jobs/{(await submit(client))['id']}/events"):
        answer = await client.get(path, headers={"accept": "text/event-stream", "last-event-id": "7"[:0] + "x"})
        assert "Last-Event-ID: not a cursor" in problem(answer, 422, "invalid")


async def test_a_cursor_of_another_journal_is_gone(client: Client) -> None:
    await submit(client)
    answer = await client.get("/v1/events?after=0-0.1000")
    assert "retention.events_seconds" in problem(answer, 410, "gone")


async def test_a_stream_has_what_happens_from_now_on(client: Client, app: ASGIApp) -> None:
    await submit(client, "add", params={"a": 1})
    async with open_stream(app, type="other") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["x-accel-buffering"] == "no"
        job = await run_job_of(client)
        events = await stream.events(3)
    assert moves(events) == LIFE
    assert {event["job"] for event in events} == {job}


async def run_job_of(client: Client) -> str:
    """A job of its own, whatever else waits."""
    job: str = (await submit(client))["id"]
    for claimed in await claim(client):
        await settle(client, claimed, 1)
    return job


async def test_a_stream_goes_on_after_the_last_id_without_gap_or_double(client: Client, app: ASGIApp) -> None:
    seen: list[Json] = []
    async with open_stream(app) as stream:
        await run_job(client)
        seen += await stream.events(3)
        last = await stream.id()
    await run_job(client)
    async with open_stream(app, headers={"last-event-id": last}) as stream:
        seen += await stream.events(3)
        await run_job(client)
        seen += await stream.events(3)
    assert moves(seen) == LIFE * 3
    assert len({event["id"] for event in seen}) == 9


async def test_a_stream_since_an_instant_begins_in_the_past(client: Client, app: ASGIApp) -> None:
    await run_job(client, tags=["red"])
    async with open_stream(app, since="2020-01-01T00:00:00Z", tag="red", items="true") as stream:
        past = await stream.events(3)
        await run_job(client, tags=["blue"])
        await run_job(client, tags=["red"])
        live = await stream.events(3)
    assert moves(past) == moves(live) == LIFE
    assert [event["item"]["tags"] for event in past + live] == [["red"]] * 6


async def test_the_stream_of_a_job_has_its_past_progress_and_log_and_ends_with_it(client: Client, app: ASGIApp) -> None:
    job = (await submit(client))["id"]
    (claimed,) = await claim(client)
    async with open_stream(app, f"/v1/jobs/{job}/events") as stream:
        assert moves(await stream.events(2)) == LIFE[:2]
        line = {"at": "2026-01-01T00:00:00Z", "stream": "stdout", "text": "half way"}
        entry = {"job": job, "fence": claimed["fence"], "lines": [line]}
        assert (await client.post("/v1/workers/w1/log", json={"entries": [entry]})).status_code == 200
        assert (await stream.named("log"))["text"] == "half way"
        lease = {"job": job, "fence": claimed["fence"], "progress": {"fraction": 0.5, "message": "half"}}
        assert (
            await client.post("/v1/workers/w1/renew", json={"worker": WORKER, "leases": [lease]})
        ).status_code == 200
        assert (await stream.named("progress"))["progress"]["fraction"] == 0.5
        await settle(client, claimed, 1)
        rest = await stream.rest()
    assert moves([block.json for block in rest if block.event == "message"]) == LIFE[2:]
    assert rest[-1].json == {"state": "succeeded"}
    async with open_stream(app, f"/v1/jobs/{job}/events") as stream:
        blocks = await stream.rest()
    assert [block.event for block in blocks] == ["message", "message", "log", "message", "end"]
    async with open_stream(app, f"/v1/jobs/{job}/events", headers={"last-event-id": stream.last_id}) as again:
        assert [block.event for block in await again.rest()] == ["end"]


async def test_a_page_of_a_job_has_its_events_and_no_others(client: Client) -> None:
    await run_job(client)
    job = await run_job(client)
    await run_job(client)
    answer = await client.get(f"/v1/jobs/{job}/events")
    assert moves(answer.json()["events"]) == LIFE
    assert {event["job"] for event in answer.json()["events"]} == {job}
    problem(await client.get(f"/v1/jobs/{UNKNOWN_JOB}/events"), 404, "not_found")
    stream = {"accept": "text/event-stream"}
    problem(await client.get(f"/v1/jobs/{UNKNOWN_JOB}/events", headers=stream), 404, "not_found")


async def test_streams_end_when_the_server_leaves(client: Client, app: ASGIApp, engine: Engine) -> None:
    async with open_stream(app) as stream, open_stream(app, type="other") as other:
        engine.leave()
        assert await stream.rest() == await other.rest() == []
        async with open_stream(app) as late:
            assert late.status == 503
    assert engine.meters.streams == 0


async def test_too_many_streams_are_told_to_come_later(client: Client, app: ASGIApp, settings: Settings) -> None:
    most = settings.limits.streams
    async with AsyncExitStack() as opened:
        for _ in range(most):
            await opened.enter_async_context(open_stream(app))
        async with open_stream(app) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    async with open_stream(app) as again:
        assert again.status == 200


async def test_without_a_journal_events_are_refused_by_the_name_of_the_setting(client: Client, engine: Engine) -> None:
    engine.settings = replace(engine.settings, events=EventSettings(keep=False))
    for path in ("/v1/events", f"/v1/jobs/{(await submit(client))['id']}/events"):
        for accept in ("application/json", "text/event-stream"):
            answer = await client.get(path, headers={"accept": accept})
            assert "events.keep" in problem(answer, 409, "events_not_kept")


async def test_a_stream_ends_when_its_key_is_revoked(client: Client, app: ASGIApp, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    async with (
        open_stream(app, headers={"authorization": f"Bearer {key.key}"}) as revoked,
        open_stream(app) as other,
    ):
        await engine.keys.revoke(KeyId(key.id))
        assert await revoked.rest() == []
        await submit(client)
        assert len(await other.events(1)) == 1


async def test_a_slow_reader_is_told_what_it_missed_and_goes_on(
    client: Client, app: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.events.stream.MAX_FLUSHES", 3)
    async with open_stream(app) as slow, open_stream(app) as fast:
        slow.reads.clear()
        first = await submit(client)
        assert [event["job"] for event in await fast.events(1)] == [first["id"]]
        for _ in range(8):
            await submit(client)
            await fast.events(1)
        slow.reads.set()
        missed = await slow.named("missed")
        last = await submit(client)
        live = await slow.events(1)
        while live[-1]["job"] != last["id"]:
            live += await slow.events(1)
    assert missed["reason"] == "slow"
    async with open_stream(app, after=missed["after"]) as again:
        everything = await again.events(9)
    assert [event["id"] for event in everything][-len(live) :] == [event["id"] for event in live]


async def test_a_request_for_the_head_of_a_stream_opens_none(client: Client, engine: Engine) -> None:
    answer = await client.head("/v1/events", headers={"accept": "text/event-stream"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert engine.meters.streams == 0


async def test_streams_are_counted_and_not_timed(client: Client, app: ASGIApp) -> None:
    async with open_stream(app):
        metrics = (await client.get("/metrics")).text
        assert "penstock_event_streams 1" in metrics
        assert 'penstock_event_lag_seconds{shard="0"} 0' in metrics
    metrics = (await client.get("/metrics")).text
    assert "penstock_event_streams 0" in metrics
    assert 'penstock_http_seconds_count{route="/v1/events",method="GET"} 0' in metrics
