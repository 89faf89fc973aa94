"""Names and tags over HTTP: what could not be kept, told or shown is refused, and takes nothing along."""

import pytest

from tests.http.api_calls import ADD, WORKER, Client, Json, claim, problem, submit

SCHEDULE: Json = {"name": "s", "type": "other", "interval": 3600}
DECISION: Json = {"name": "s", "version": 1, "expected_tick_at": None, "next_tick_at": None}

REQUESTS = [
    ("POST /v1/jobs", {"type": "other\n"}),
    ("POST /v1/jobs", {"type": "other", "queue": "q\n"}),
    ("POST /v1/jobs", {"type": "other", "tags": ["red\0"]}),
    ("POST /v1/jobs", {"type": "other", "tags": ["red\n"]}),
    ("POST /v1/jobs", {"type": "other", "idempotency_key": "k\n"}),
    ("POST /v1/schedules", SCHEDULE | {"name": "s\n"}),
    ("POST /v1/schedules", SCHEDULE | {"queue": "q\n"}),
    ("POST /v1/schedules", SCHEDULE | {"tags": ["\0"]}),
    ("PUT /v1/schedules/s%0A", {"type": "other", "interval": 60}),
    ("PATCH /v1/schedules/s", {"tags": ["\0"]}),
    ("POST /v1/workers", {"worker": WORKER | {"id": "w1\n"}, "types": []}),
    ("POST /v1/workers", {"worker": WORKER | {"types": ["add\n"]}, "types": []}),
    ("POST /v1/workers", {"worker": WORKER, "types": [ADD | {"queue": "sums\n"}]}),
    ("POST /v1/workers/w1/claim", {"types": ["other\n"], "limit": 1}),
    ("POST /v1/workers/w1%0A/claim", {"types": ["other"], "limit": 1}),
    ("POST /v1/schedulers/a/tick", {"decisions": [DECISION | {"name": "s\0"}]}),
    (
        "POST /v1/schedulers/a/tick",
        {"decisions": [DECISION | {"verdicts": [{"at": "2026-01-01T00:00:00Z", "skipped": "\0"}]}]},
    ),
    ("GET /v1/jobs?tag=%00", None),
    ("GET /v1/jobs?queue=q%0A", None),
]


@pytest.mark.parametrize(("route", "body"), REQUESTS)
async def test_a_name_that_ends_or_holds_a_control_character_is_refused(
    client: Client, route: str, body: Json | None
) -> None:
    method, path = route.split()
    answer = await client.request(method, path, json=body)
    problem(answer, 422, "invalid")
    job = await submit(client)
    assert [one["job"] for one in await claim(client)] == [job["id"]]


async def test_of_a_keyed_batch_only_the_job_whose_tag_cannot_be_kept_is_refused(client: Client) -> None:
    jobs = [{"type": "other"}, {"type": "other", "tags": ["red\0"]}, {"type": "other", "queue": "q\n"}]
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["accepted"], answer.json()["refused"]) == (200, 1, 2)
    assert len(await claim(client)) == 1


@pytest.mark.parametrize("text", ["\0", "\n", "\x9b", "\ufffe"])
async def test_params_and_results_hold_any_character(client: Client, text: str) -> None:
    job = await submit(client, params={text: [text]})
    assert (await client.get(f"/v1/jobs/{job['id']}")).json()["params"] == {text: [text]}
