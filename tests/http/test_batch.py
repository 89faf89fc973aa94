"""Many jobs in one request."""

from tests.http.api_calls import Client, problem


async def test_each_job_of_a_batch_is_accepted_or_refused_by_itself(client: Client) -> None:
    jobs = [
        {"type": "other"},
        {"type": "nobody-knows"},
        {"type": "add", "params": {"a": 1}},
        {"type": "add", "params": {}},
        {"typo": "other"},
        "not even an object",
    ]
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs})
    body = answer.json()
    assert (answer.status_code, body["accepted"], body["refused"]) == (200, 2, 4)
    assert [one["index"] for one in body["jobs"]] == list(range(6))
    codes = [one.get("problem", {}).get("code") for one in body["jobs"]]
    assert codes == [None, "unknown_type", None, "invalid_params", "invalid", "invalid"]
    assert [one.get("created", False) for one in body["jobs"]] == [True, False, True, False, False, False]
    assert body["jobs"][1]["problem"]["instance"] == "#/jobs/1"
    assert "`typo`" in body["jobs"][4]["problem"]["detail"]


async def test_a_batch_repeated_under_its_key_adds_nothing(client: Client) -> None:
    batch = {"jobs": [{"type": "other"}, {"type": "other", "idempotency_key": "own"}, {"type": "other"}]}
    first = (await client.post("/v1/jobs/batch", json=batch, headers={"Idempotency-Key": "k"})).json()
    again = (await client.post("/v1/jobs/batch", json=batch, headers={"Idempotency-Key": "k"})).json()
    assert [one["id"] for one in first["jobs"]] == [one["id"] for one in again["jobs"]]
    assert all(one["created"] for one in first["jobs"])
    assert not any(one.get("created") for one in again["jobs"])


async def test_a_batch_with_faults_in_it_is_found_again_job_by_job(client: Client) -> None:
    batch = {"jobs": [{"typo": 1}, {"type": "other"}, "nothing", {"type": "nobody-knows"}, {"type": "other"}]}
    first = (await client.post("/v1/jobs/batch", json=batch, headers={"Idempotency-Key": "k"})).json()
    again = (await client.post("/v1/jobs/batch", json=batch, headers={"Idempotency-Key": "k"})).json()
    assert [one.get("created", False) for one in first["jobs"]] == [False, True, False, False, True]
    assert [one.get("id") for one in first["jobs"]] == [one.get("id") for one in again["jobs"]]
    assert (again["accepted"], again["refused"]) == (2, 3)


async def test_the_key_of_a_batch_used_for_another_is_a_conflict_of_each_job(client: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    await client.post("/v1/jobs/batch", json={"jobs": [{"type": "other"}]}, headers=headers)
    other = {"jobs": [{"type": "other"}, {"type": "other", "idempotency_key": "own"}, {"type": "other"}]}
    answer = (await client.post("/v1/jobs/batch", json=other, headers=headers)).json()
    codes = [one.get("problem", {}).get("code") for one in answer["jobs"]]
    assert codes == ["key_conflict", None, "key_conflict"]


async def test_a_batch_without_a_list_is_refused_by_name(client: Client) -> None:
    answer = await client.post("/v1/jobs/batch", json={"jobs": 5})
    assert "$.jobs" in problem(answer, 422, "invalid")


async def test_a_key_that_is_too_long_is_refused(client: Client) -> None:
    headers = {"Idempotency-Key": "x" * 256}
    answer = await client.post("/v1/jobs/batch", json={"jobs": [{"type": "other"}]}, headers=headers)
    assert "Idempotency-Key" in problem(answer, 422, "invalid")


async def test_a_batch_above_the_limit_is_too_large(client: Client) -> None:
    answer = await client.post("/v1/jobs/batch", json={"jobs": [{"type": "other"}] * 101})
    assert "limits.batch_jobs" in problem(answer, 413, "too_large")


async def test_an_empty_batch_is_fine(client: Client) -> None:
    answer = await client.post("/v1/jobs/batch", json={"jobs": []})
    assert answer.json() == {"accepted": 0, "refused": 0, "jobs": []}
