"""Jobs over HTTP: add, look at, wait for, list, cancel, retry."""

import asyncio

import pytest

from tests.http.api_calls import UNKNOWN_JOB, Client, claim, job, problem, settle, submit


async def test_a_job_goes_in_over_http_and_comes_out_done(client: Client) -> None:
    added = await client.post("/v1/jobs", json={"type": "add", "params": {"a": 2}})
    item = added.json()
    assert (added.status_code, added.headers["location"]) == (201, f"/v1/jobs/{item['id']}")
    assert (item["state"], item["params"], item["queue"]) == ("queued", {"a": 2}, "sums")
    (claimed,) = await claim(client)
    assert (claimed["job"], claimed["params"]) == (item["id"], {"a": 2})
    assert await settle(client, claimed, 3) == {"refused": []}
    done = await job(client, item["id"])
    assert (done["state"], done["result"], done["attempt"]) == ("succeeded", 3, 1)


async def test_a_job_shows_its_version_also_as_the_etag(client: Client) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    running = await client.get(f"/v1/jobs/{item['id']}")
    await settle(client, claimed)
    ended = await client.get(f"/v1/jobs/{item['id']}")
    assert [item["version"], running.json()["version"], ended.json()["version"]] == [1, 2, 3]
    assert [running.headers["etag"], ended.headers["etag"]] == ['"2"', '"3"']


async def test_a_repeated_key_gives_the_same_job_back(client: Client) -> None:
    first = await client.post("/v1/jobs", json={"type": "other"}, headers={"Idempotency-Key": "k"})
    again = await client.post("/v1/jobs", json={"type": "other"}, headers={"Idempotency-Key": "k"})
    by_body = await client.post("/v1/jobs", json={"type": "other", "idempotency_key": "k"})
    assert [first.status_code, again.status_code, by_body.status_code] == [201, 200, 200]
    assert first.json()["id"] == again.json()["id"] == by_body.json()["id"]


async def test_a_key_of_another_body_is_a_conflict(client: Client) -> None:
    await submit(client, idempotency_key="k")
    answer = await client.post("/v1/jobs", json={"type": "other", "priority": 9, "idempotency_key": "k"})
    problem(answer, 409, "key_conflict")


async def test_two_different_keys_for_one_job_are_refused(client: Client) -> None:
    body = {"type": "other", "idempotency_key": "one"}
    answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "two"})
    assert "different keys" in problem(answer, 422, "invalid")


@pytest.mark.parametrize("key", ["", " ", "a b", "ä".encode().decode("latin-1"), "x" * 256])
async def test_a_key_that_cannot_be_kept_is_refused(client: Client, key: str) -> None:
    answer = await client.post("/v1/jobs", json={"type": "other"}, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert "Idempotency-Key" in problem(answer, 422, "invalid")


async def test_an_unknown_type_is_refused_naming_the_known_ones(client: Client) -> None:
    answer = await client.post("/v1/jobs", json={"type": "ad"})
    assert "known: add, other" in problem(answer, 422, "unknown_type")
    assert answer.json()["known"] == ["add", "other"]


async def test_params_that_do_not_fit_the_handler_are_refused(client: Client) -> None:
    problem(await client.post("/v1/jobs", json={"type": "add", "params": {"b": 1}}), 422, "invalid_params")


@pytest.mark.parametrize("id", [UNKNOWN_JOB, "nonsense", "00000000-0000-4000-8000-000000000000"])
@pytest.mark.parametrize(
    "route", ["GET ", "POST /cancel", "POST /retry", "GET /logs", "GET /inputs/a", "GET /outputs/a"]
)
async def test_an_unknown_job_is_not_found(client: Client, id: str, route: str) -> None:
    method, _, rest = route.partition(" ")
    problem(await client.request(method, f"/v1/jobs/{id}{rest}"), 404, "not_found")


async def test_a_waiting_job_says_why(client: Client) -> None:
    later = await submit(client, delay_seconds=60)
    assert (later["state"], later["reason"]) == ("scheduled", "due later")


async def test_waiting_answers_the_moment_the_job_ends(client: Client) -> None:
    item = await submit(client)
    waiting = asyncio.create_task(client.get(f"/v1/jobs/{item['id']}", params={"wait": 30}))
    (claimed,) = await claim(client)
    await settle(client, claimed, "done")
    assert (await waiting).json()["result"] == "done"


async def test_waiting_for_a_job_that_does_not_end_gives_it_as_it_is(client: Client) -> None:
    item = await submit(client)
    answer = await client.get(f"/v1/jobs/{item['id']}", params={"wait": 0.01})
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")


async def test_pages_follow_each_other_without_gap_or_overlap(client: Client) -> None:
    added = [(await submit(client))["id"] for _ in range(12)]
    seen, cursor = [], None
    while True:
        page = (await client.get("/v1/jobs", params={"limit": 100} | ({"cursor": cursor} if cursor else {}))).json()
        assert len(page["jobs"]) <= 5
        seen += [item["id"] for item in page["jobs"]]
        if (cursor := page["cursor"]) is None:
            break
    assert sorted(seen) == sorted(added)


async def test_a_list_is_narrowed_by_each_filter(client: Client) -> None:
    wanted = await submit(client, queue="fast", tags=["red"])
    await submit(client)
    for query in ({"queue": "fast"}, {"tag": "red"}, {"type": "other", "queue": "fast", "state": "queued"}):
        page = (await client.get("/v1/jobs", params=query)).json()
        assert [item["id"] for item in page["jobs"]] == [wanted["id"]], query
    assert (await client.get("/v1/jobs", params={"type": "add"})).json() == {
        "jobs": [],
        "cursor": None,
        "missing_shards": [],
    }


async def test_a_waiting_job_is_cancelled_and_can_be_retried_as_a_new_one(client: Client) -> None:
    item = await submit(client)
    problem(await client.post(f"/v1/jobs/{item['id']}/retry"), 409, "conflict")
    cancelled = await client.post(f"/v1/jobs/{item['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    again = await client.post(f"/v1/jobs/{item['id']}/retry")
    assert (again.status_code, again.json()["retry_of"]) == (201, item["id"])
    assert again.headers["location"] == f"/v1/jobs/{again.json()['id']}"


async def test_a_running_job_is_asked_to_stop_or_ended_by_force(client: Client) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    asked = (await client.post(f"/v1/jobs/{item['id']}/cancel")).json()
    assert (asked["state"], asked["cancel_requested"]) == ("running", True)
    forced = (await client.post(f"/v1/jobs/{item['id']}/cancel?force=true")).json()
    assert forced["state"] == "cancelled"
    assert (await settle(client, claimed))["refused"][0]["loss"] == "lost"


async def test_head_gives_the_headers_of_get(client: Client) -> None:
    item = await submit(client)
    head, got = await client.head(f"/v1/jobs/{item['id']}"), await client.get(f"/v1/jobs/{item['id']}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"] == "application/json"
