"""Parameters are refused by name: unknown, doubled, out of range."""

import pytest

from tests.http.api_calls import UNKNOWN_JOB, Client, problem


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("state=done", "state"),
        ("state=null", "state"),
        ("type=a%20b", "type"),
        ("queue=..%2F", "queue"),
        ("tag=", "tag"),
        ("limt=5", "limt"),
        ("limit=5&limit=6", "limit"),
        ("cursor=nonsense", "cursor"),
    ],
)
async def test_a_list_parameter_that_does_not_fit_is_refused_by_name(client: Client, query: str, named: str) -> None:
    assert named in problem(await client.get(f"/v1/jobs?{query}"), 422, "invalid")


@pytest.mark.parametrize("query", ["wait=nan", "wait=inf", "wait=-1", "wait=soon", "wait=1e9", "wait=", "Wait=1"])
async def test_a_wait_that_does_not_fit_is_refused(client: Client, query: str) -> None:
    assert "wait" in problem(await client.get(f"/v1/jobs/{UNKNOWN_JOB}?{query}"), 422, "invalid").lower()


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/types", "/v1/workers", "/healthz", "/metrics", "/openapi.json"])
async def test_where_there_are_no_parameters_none_is_accepted(client: Client, path: str) -> None:
    assert "verbose" in problem(await client.get(f"{path}?verbose=1"), 422, "invalid")


@pytest.mark.parametrize("query", ["tag=%FF", "=", "a;b", "&".join(f"p{n}=1" for n in range(50))])
async def test_a_query_that_cannot_be_read_is_refused(client: Client, query: str) -> None:
    problem(await client.get(f"/v1/jobs?{query}"), 422, "invalid")
