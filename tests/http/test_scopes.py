"""Operation × scope, from the document: a key gets in exactly where it says, and nothing else gets in at all."""

from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.keys import KeyScope
from tests.http.api_calls import UNKNOWN_JOB, Client, Json, problem
from tests.http.api_keys import FOREIGN, client_of, create_expired_key, create_key, create_revoked_key, with_key

PARTS = {
    "job": UNKNOWN_JOB,
    "queue": "sums",
    "worker": "w1",
    "schedule": "nightly",
    "scheduler": "s1",
    "name": "letter.txt",
    "fence": "1",
    "number": "0",
    "key": "aaaaaaaa",
    "shard": "0",
    "fleet": "default",
    "subscription": "orders",
    "type": "sum",
}


class Operation(Struct, frozen=True):
    """One operation as the document describes it. `scopes`: any of them is enough; none: for everyone."""

    method: str
    path: str
    scopes: frozenset[str]
    takes_json: bool

    @property
    def url(self) -> str:
        return self.path.format_map(PARTS)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, server=ServerSettings(keys="required"))


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[Client]:
    async with client_of(app) as client:
        yield client


def documented(document: Json) -> Iterator[Operation]:
    for path, there in document["paths"].items():
        for method, one in there.items():
            scopes = frozenset(scope for entry in one["security"] for scope in entry["key"])
            takes_json = "application/json" in one.get("requestBody", {}).get("content", {})
            yield Operation(method.upper(), path, scopes, takes_json)
            if method == "get":
                yield Operation("HEAD", path, scopes, takes_json)


async def operations(client: Client) -> list[Operation]:
    answer = await client.get("/openapi.json")
    return list(documented(answer.json()))


async def status(client: Client, one: Operation) -> int:
    answer = await client.request(one.method, one.url, json={} if one.takes_json else None)
    if answer.status_code in {401, 403}:
        assert answer.headers["www-authenticate"].startswith('Bearer realm="penstock"')
    return answer.status_code


async def test_the_document_names_scopes_for_everything_but_health_and_itself(client: Client) -> None:
    found = await operations(client)
    assert len(found) > 40
    assert {one.path for one in found if not one.scopes} == {"/healthz", "/readyz", "/openapi.json"}
    assert {scope for one in found for scope in one.scopes} == set(KeyScope)


@pytest.mark.parametrize("scope", KeyScope)
async def test_a_key_of_one_scope_is_forbidden_exactly_what_needs_another(
    scope: KeyScope, client: Client, engine: Engine
) -> None:
    key, wrong = (await create_key(engine, scope)).key, []
    for one in await operations(client):
        allowed = not one.scopes or scope in one.scopes or scope is KeyScope.ADMIN
        with with_key(client, key):
            answered = await status(client, one)
        if (answered in {401, 403}) == allowed or (not allowed and answered != 403):
            wrong.append((one.method, one.path, answered))
    assert wrong == []


@pytest.mark.parametrize("kind", ["none", "foreign", "revoked", "expired", "another's secret", "no key at all"])
async def test_without_a_good_key_everything_is_401_whatever_it_was_good_for(
    kind: str, client: Client, engine: Engine
) -> None:
    keys: dict[str, str | None] = {
        "none": None,
        "foreign": FOREIGN,
        "revoked": (await create_revoked_key(engine, *KeyScope)).key,
        "expired": (await create_expired_key(engine, *KeyScope)).key,
        "another's secret": (await create_key(engine, *KeyScope)).key[:12]
        + (await create_key(engine, *KeyScope)).key[12:],
        "no key at all": "hunter2",
    }
    found = await operations(client)
    with with_key(client, keys[kind]):
        answers = {(one.method, one.path): await status(client, one) for one in found if one.scopes}
        open_ones = [await status(client, one) for one in found if not one.scopes]
    assert set(answers.values()) == {401}
    assert set(open_ones) == {200}


async def test_a_forbidden_operation_names_the_scope_it_needs(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    with with_key(client, key.key):
        answer = await client.post(f"/v1/jobs/{UNKNOWN_JOB}/cancel")
    assert "jobs:cancel" in problem(answer, 403, "forbidden")
    assert 'error="insufficient_scope", scope="jobs:cancel"' in answer.headers["www-authenticate"]


async def test_who_may_not_ask_learns_nothing_of_what_exists_or_what_else_is_wrong(
    client: Client, engine: Engine
) -> None:
    key = await create_key(engine, KeyScope.JOBS_WRITE)
    await engine.queues.pause("sums", paused=True)
    bad = {"content": b"{not json", "headers": {"content-type": "text/html"}}
    with with_key(client, key.key):
        there, nowhere = [await client.get(f"/v1/queues/{name}") for name in ("sums", "unheard-of")]
        assert problem(there, 403, "forbidden") == problem(nowhere, 403, "forbidden")
        problem(await client.get("/v1/queues?no=such"), 403, "forbidden")
    with with_key(client, None):
        problem(await client.post("/v1/jobs", **bad), 401, "unauthorized")  # type: ignore[arg-type]
        problem(await client.get("/v1/queues?no=such"), 401, "unauthorized")
