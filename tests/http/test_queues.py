"""Queues over HTTP: depth, age, pause and resume."""

import pytest

from tests.http.api_calls import Client, claim, problem, submit


async def test_a_queue_shows_its_jobs_by_state_and_the_age_of_the_oldest(client: Client) -> None:
    await submit(client)
    await submit(client)
    await submit(client, delay_seconds=60)
    await claim(client, limit=1)
    queue = (await client.get("/v1/queues/other")).json()
    assert {state: jobs for state, jobs in queue["jobs"].items() if jobs} == {"queued": 1, "running": 1, "scheduled": 1}
    assert queue["oldest_seconds"] >= 0
    listed = (await client.get("/v1/queues")).json()["queues"]
    assert [one["name"] for one in listed] == ["other", "sums"]


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(client: Client) -> None:
    assert (await client.post("/v1/queues/other/pause")).json()["paused"] is True
    item = await submit(client)
    assert item["reason"] == "queue paused"
    assert await claim(client, wait=0.01) == []
    assert (await client.post("/v1/queues/other/resume")).json()["paused"] is False


async def test_an_unknown_queue_is_not_found(client: Client) -> None:
    problem(await client.get("/v1/queues/nothing"), 404, "not_found")


@pytest.mark.parametrize("name", ["a%20b", "-x", "x" * 129, "%00"])
async def test_a_name_no_queue_can_have_is_refused(client: Client, name: str) -> None:
    assert "queue" in problem(await client.post(f"/v1/queues/{name}/pause"), 422, "invalid")
