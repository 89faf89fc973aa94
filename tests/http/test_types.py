"""Job types over HTTP: listed, renamed and retired."""

from penstock.engine import Engine
from tests.http.api_calls import JOIN, Client, claim, problem, submit


async def test_a_declared_type_tells_when_it_was_declared_and_what_it_is_called_besides(client: Client) -> None:
    assert (await client.put("/v1/types/former/alias", json={"run_as": "other"})).json()["aliases"] == ["former"]
    types = {one["name"]: one for one in (await client.get("/v1/types")).json()["types"]}
    assert types["other"]["aliases"] == ["former"]
    assert types["other"]["declared_at"] is not None
    assert "earlier" not in types["other"]


async def test_jobs_under_an_old_name_are_run_as_the_new_type(client: Client) -> None:
    await client.put("/v1/types/former/alias", json={"run_as": "other"})
    item = await submit(client, type="former")
    assert (item["type"], item["queue"]) == ("other", "other")
    assert [one["job"] for one in await claim(client)] == [item["id"]]
    assert (await client.delete("/v1/types/former/alias")).status_code == 204
    problem(await client.delete("/v1/types/former/alias"), 404, "not_found")
    problem(await client.post("/v1/jobs", json={"type": "former"}), 422, "unknown_type")


async def test_a_type_can_be_run_only_as_one_that_is_declared_and_not_as_itself(client: Client) -> None:
    problem(await client.put("/v1/types/former/alias", json={"run_as": "nothing"}), 422, "unknown_type")
    problem(await client.put("/v1/types/other/alias", json={"run_as": "other"}), 422, "invalid")
    await client.put("/v1/types/former/alias", json={"run_as": "other"})
    problem(await client.put("/v1/types/other/alias", json={"run_as": "former"}), 422, "invalid")


async def test_a_retired_type_is_refused_and_tells_what_is_left_of_it(client: Client) -> None:
    item = await submit(client)
    retired = (await client.post("/v1/types/other/retire", json={})).json()
    assert retired == {"name": "other", "jobs": {"queued": 1}, "cancelled": 0}
    assert "retired" in problem(await client.post("/v1/jobs", json={"type": "other"}), 422, "unknown_type")
    retired = (await client.post("/v1/types/other/retire", json={"cancel": True})).json()
    assert retired == {"name": "other", "jobs": {}, "cancelled": 1}
    assert (await client.get(f"/v1/jobs/{item['id']}")).json()["state"] == "cancelled"
    problem(await client.post("/v1/types/nothing/retire", json={}), 404, "not_found")


async def test_a_retired_type_is_declared_again_only_by_code_that_is_deployed_later(
    client: Client, engine: Engine
) -> None:
    await client.post("/v1/types/other/retire", json={})
    old = {**JOIN, "worker": {**JOIN["worker"], "code_age_seconds": 60}}
    assert (await client.post("/v1/workers", json=old)).status_code == 200
    problem(await client.post("/v1/jobs", json={"type": "other"}), 422, "unknown_type")
    assert (await client.post("/v1/workers", json=JOIN)).status_code == 200
    assert (await client.post("/v1/jobs", json={"type": "other"})).status_code == 201
