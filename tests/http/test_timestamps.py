"""Instants over HTTP: what could not be read back is refused, and takes nothing along."""

import pytest

from tests.http.api_calls import UNKNOWN_JOB, WORKER, Client, Json, problem, submit

TOO_LATE = "9999-12-31T23:59:59-12:00"
TOO_EARLY = "0001-01-01T00:00:00+12:00"
SCHEDULE: Json = {"name": "s", "type": "other", "interval": 3600}
DECISION: Json = {"name": "s", "version": 1, "expected_tick_at": None, "next_tick_at": None}
LOG: Json = {"job": UNKNOWN_JOB, "fence": 1, "lines": [{"stream": "stdout", "text": "x"}]}

REQUESTS = [
    ("POST /v1/jobs", {"type": "other"}, "scheduled_at"),
    ("POST /v1/jobs", {"type": "other"}, "expires_at"),
    ("POST /v1/schedules", SCHEDULE, "start_at"),
    ("POST /v1/schedules", SCHEDULE, "end_at"),
    ("PUT /v1/schedules/s", {"type": "other", "interval": 60}, "start_at"),
    ("PATCH /v1/schedules/s", {}, "end_at"),
    ("POST /v1/schedules/preview", {"interval": 60}, "start_at"),
    ("POST /v1/schedules/s/backfill", {"to": "2026-01-01T00:00:00Z"}, "from"),
    ("POST /v1/schedules/s/backfill", {"from": "2026-01-01T00:00:00Z"}, "to"),
    ("POST /v1/workers", {"worker": WORKER, "types": []}, "worker.started_at"),
    ("POST /v1/workers/w1/renew", {"worker": WORKER}, "worker.seen_at"),
    ("POST /v1/workers/w1/log", {"entries": [LOG]}, "entries.0.lines.0.at"),
    ("POST /v1/schedulers/a/tick", {"decisions": [DECISION]}, "decisions.0.next_tick_at"),
    ("POST /v1/schedulers/a/tick", {"decisions": [DECISION | {"verdicts": [{}]}]}, "decisions.0.verdicts.0.at"),
]


@pytest.mark.parametrize("at", [TOO_LATE, TOO_EARLY, "3000-01-01T00:00:00Z", "1969-12-31T23:59:59Z"])
@pytest.mark.parametrize(("route", "body", "place"), REQUESTS)
async def test_an_instant_out_of_range_is_refused(client: Client, route: str, body: Json, place: str, at: str) -> None:
    method, path = route.split()
    answer = await client.request(method, path, json=with_value(body, place.split("."), at))
    assert place.rpartition(".")[2] in problem(answer, 422, "invalid")
    await everything_reads(client)


@pytest.mark.parametrize("at", [TOO_LATE, TOO_EARLY])
async def test_a_cursor_out_of_range_is_refused(client: Client, at: str) -> None:
    (await client.post("/v1/schedules", json=SCHEDULE)).raise_for_status()
    answer = await client.get("/v1/schedules/s/ticks", params={"cursor": at})
    assert "cursor" in problem(answer, 422, "invalid")


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}])
async def test_of_a_batch_only_the_job_out_of_range_is_refused(client: Client, headers: dict[str, str]) -> None:
    jobs = [{"type": "other"}, {"type": "other", "expires_at": TOO_LATE}, {"type": "other"}]
    answer = (await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers=headers)).json()
    assert (answer["accepted"], answer["refused"]) == (2, 1)
    assert "expires_at" in answer["jobs"][1]["problem"]["detail"]
    await everything_reads(client)


@pytest.mark.parametrize("at", ["2999-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z", "2999-12-31T23:59:59+00:01"])
async def test_an_instant_at_the_edge_is_kept(client: Client, at: str) -> None:
    job = await submit(client, scheduled_at=at)
    assert (await client.get(f"/v1/jobs/{job['id']}")).json()["scheduled_at"] == job["scheduled_at"]
    await everything_reads(client)


def with_value(body: Json, place: list[str], value: str) -> Json:
    """The body with a value at a place of it."""
    if place[0].isdecimal():
        return [with_value(body[int(place[0])], place[1:], value)]  # type: ignore[return-value, index]
    return body | {place[0]: value if len(place) == 1 else with_value(body[place[0]], place[1:], value)}


async def everything_reads(client: Client) -> None:
    for path in ("/v1/jobs", "/v1/queues", "/v1/schedules", "/v1/workers", "/metrics"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
