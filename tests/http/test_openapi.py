"""The document says what is routed, and all of it."""

import re

from penstock.api.app import OPERATIONS, Api
from penstock.api.problems import STATUSES
from penstock.model.errors import BY_CODE
from tests.http.api_calls import Client


async def test_every_route_is_documented_and_the_reverse(client: Client, app: Api) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == set(app.paths)
    documented = {(method.upper(), path) for path, there in document["paths"].items() for method in there}
    assert documented == {(operation.method, operation.path) for operation in OPERATIONS}


async def test_every_operation_has_a_name_of_its_own_a_summary_and_its_path_parameters(client: Client) -> None:
    document = (await client.get("/openapi.json")).json()
    described = [(path, one) for path, there in document["paths"].items() for one in there.values()]
    names = [one["operationId"] for _, one in described]
    assert len(set(names)) == len(names)
    for path, one in described:
        assert one["summary"].endswith(".")
        parts = {parameter["name"] for parameter in one["parameters"] if parameter["in"] == "path"}
        assert parts == set(re.findall(r"{(\w+)}", path))


async def test_every_reference_leads_somewhere(client: Client) -> None:
    answer = await client.get("/openapi.json")
    schemas = answer.json()["components"]["schemas"]
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', answer.text))
    assert referred <= set(schemas)


async def test_every_tag_that_is_used_is_described_and_the_reverse(client: Client) -> None:
    document = (await client.get("/openapi.json")).json()
    used = {tag for there in document["paths"].values() for one in there.values() for tag in one["tags"]}
    assert {tag["name"] for tag in document["tags"]} == used
    assert all(tag["description"].endswith(".") for tag in document["tags"])
    assert [server["url"] for server in document["servers"]] == ["/"]


async def test_no_body_has_a_default_and_params_may_hold_anything(client: Client) -> None:
    """Generated clients take a property with a default for one that must be given."""
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    properties = [(name, field, one) for name, it in schemas.items() for field, one in it.get("properties", {}).items()]
    assert [(name, field) for name, field, one in properties if "default" in one] == []
    assert schemas["SubmitRequest"]["required"] == ["type"]
    assert schemas["SubmitRequest"]["properties"]["params"] == {"type": "object", "additionalProperties": True}


async def test_what_the_server_always_writes_is_required_in_its_answers_alone(client: Client) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert {"schedule", "tick_at", "omitted"} <= set(schemas["JobItem"]["required"])
    assert "detail" not in schemas["Problem"]["required"], "left out where it is empty"
    assert "max_attempts" not in schemas["Retry"]["required"], "also part of requests"


def test_every_problem_has_a_code_of_the_tree() -> None:
    assert {kind.code for kind, _ in STATUSES} <= set(BY_CODE)
