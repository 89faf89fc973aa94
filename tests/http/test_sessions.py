"""A browser that is signed in: its cookie, what it may do with it, and which pages may use it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from http.cookies import SimpleCookie

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.api.app import OPERATIONS
from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.keys import KeyId, KeyScope
from penstock.model.notices import NoticeKind
from tests.http.api_calls import UNKNOWN_JOB, Client, Json, problem, submit
from tests.http.api_keys import client_of, create_expired_key, create_key, with_key
from tests.http.event_streams import open_stream

PAGE = {"sec-fetch-site": "same-origin", "origin": "http://localhost"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, server=ServerSettings(keys="required", allow_unknown_types=True))


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[Client]:
    async with client_of(app) as client:
        yield client


async def sign_in(client: Client, key: str, body: Json | None = None, **headers: str) -> Json:
    """Sign in as the page does; the client has the cookie from then on."""
    with with_key(client, key):
        answer = await client.post("/v1/session", json=body or {}, headers=PAGE | headers)
    assert answer.status_code == 201, answer.text
    item: Json = answer.json()
    return item


async def test_a_key_becomes_a_session_with_the_same_scopes(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ, KeyScope.JOBS_WRITE)
    item = await sign_in(client, key.key)
    assert (item["scopes"], item["needs_key"]) == (["jobs:read", "jobs:write"], True)
    assert item["key"] != key.id
    told = (await client.get("/v1/session", headers=PAGE)).json()
    assert told == item
    assert (await client.get("/v1/jobs", headers=PAGE)).status_code == 200
    assert (await client.get("/v1/keys", headers=PAGE)).status_code == 403


async def test_a_session_may_be_for_looking_only(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.ADMIN)
    item = await sign_in(client, key.key, {"scopes": ["jobs:read"]})
    assert item["scopes"] == ["jobs:read"]
    answer = await client.post("/v1/queues/mail/pause", headers=PAGE | {"penstock-token": item["token"]})
    assert "queues" in problem(answer, 403, "forbidden")
    assert (await client.get("/v1/schedules", headers=PAGE)).status_code == 200
    assert (await client.get("/v1/shards", headers=PAGE)).json()["shards"][0]["url"] is None


async def test_a_session_gets_no_scope_that_its_key_lacks(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    with with_key(client, key.key):
        answer = await client.post("/v1/session", json={"scopes": ["jobs:read", "admin"]}, headers=PAGE)
    problem(answer, 403, "forbidden")
    assert [one.id for one in await engine.keys.list()] == [key.id]


async def test_a_session_starts_no_other(client: Client, engine: Engine) -> None:
    item = await sign_in(client, (await create_key(engine, KeyScope.ADMIN)).key)
    answer = await client.post("/v1/session", json={}, headers=PAGE | {"penstock-token": item["token"]})
    assert "session" in problem(answer, 403, "forbidden")


@pytest.mark.parametrize(
    ("origin", "name", "secure"),
    [("http://localhost", "penstock", ""), ("https://jobs.example", "__Host-penstock", True)],
)
async def test_no_script_and_no_other_site_sees_the_cookie(
    client: Client, engine: Engine, origin: str, name: str, secure: bool | str
) -> None:
    with with_key(client, (await create_key(engine, KeyScope.ADMIN)).key):
        answer = await client.post("/v1/session", json={}, headers=PAGE | {"origin": origin})
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie.key == name
    assert cookie["secure"] == secure
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, "Strict", "/", "")
    assert cookie["max-age"] == str(12 * 3600)
    assert "pk_" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8080"},
    ],
    ids=str,
)
async def test_a_page_of_another_origin_may_not_use_a_session(
    client: Client, engine: Engine, headers: dict[str, str]
) -> None:
    item = await sign_in(client, (await create_key(engine, KeyScope.ADMIN)).key)
    token = {"penstock-token": item["token"]}
    problem(await client.get("/v1/jobs", headers=headers), 403, "cross_origin")
    problem(await client.post("/v1/queues/mail/pause", headers=headers | token), 403, "cross_origin")


@pytest.mark.parametrize(
    "headers",
    [{}, {"sec-fetch-site": "none"}, PAGE, PAGE | {"penstock-token": "0" * 32}],
    ids=["says nothing", "by the user alone", "without a token", "with another token"],
)
async def test_a_session_changes_nothing_without_origin_and_token(
    client: Client, engine: Engine, headers: dict[str, str]
) -> None:
    await sign_in(client, (await create_key(engine, KeyScope.ADMIN)).key)
    changing = [one for one in OPERATIONS if one.method != "GET" and one.scopes]
    assert len(changing) > 30
    for operation in changing:
        path = operation.path.replace("{job}", UNKNOWN_JOB).replace("{", "").replace("}", "")
        problem(await client.request(operation.method, path, json={}, headers=headers), 403, "cross_origin")


async def test_with_its_token_the_page_changes_things(client: Client, engine: Engine) -> None:
    item = await sign_in(client, (await create_key(engine, KeyScope.ADMIN)).key)
    client.headers.update(PAGE | {"penstock-token": item["token"]})
    job = await submit(client)
    assert (await client.post(f"/v1/jobs/{job['id']}/cancel")).json()["state"] == "cancelled"


async def test_a_session_dies_with_its_key(client: Client, app: ASGIApp, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    await sign_in(client, key.key)
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    async with open_stream(app, "/v1/live", {"cookie": cookie, **PAGE}) as page:
        await page.named("digest")
        await engine.keys.revoke(KeyId(key.id))
        problem(await client.get("/v1/jobs", headers=PAGE), 401, "unauthorized")
        assert (await page.rest())[-1].event == "refused"


async def test_a_session_ends_after_half_a_day_and_the_next_sign_in_removes_it(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    other = await create_expired_key(engine, KeyScope.JOBS_READ)
    item = await sign_in(client, key.key)
    (kept,) = [one for one in await engine.keys.list() if one.id == item["key"]]
    assert kept.expires_at == kept.created_at + timedelta(hours=12)
    assert kept.parent == key.id
    over = replace(kept, expires_at=kept.created_at)
    await engine.catalog.put_notices(NoticeKind.KEY, {kept.id: msgspec.json.encode(over)})
    problem(await client.get("/v1/jobs", headers=PAGE), 401, "unauthorized")
    fresh = await sign_in(client, key.key)
    left = {one.id for one in await engine.keys.list()}
    assert left == {key.id, other.id, fresh["key"]}, "only sessions are removed"


async def test_signing_out_ends_the_session_everywhere(client: Client, engine: Engine) -> None:
    key = await create_key(engine, KeyScope.JOBS_READ)
    item = await sign_in(client, key.key)
    cookies = dict(client.cookies)
    answer = await client.delete("/v1/session", headers=PAGE | {"penstock-token": item["token"]})
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    client.cookies.update(cookies)
    problem(await client.get("/v1/session", headers=PAGE), 401, "unauthorized")
    assert [one.id for one in await engine.keys.list()] == [key.id]


async def test_a_key_that_is_shown_counts_before_a_cookie(client: Client, engine: Engine) -> None:
    await sign_in(client, (await create_key(engine, KeyScope.JOBS_READ)).key)
    admin = await create_key(engine, KeyScope.ADMIN)
    with with_key(client, admin.key):
        told = (await client.get("/v1/session", headers={"sec-fetch-site": "cross-site"})).json()
    assert (told["key"], told["token"]) == (admin.id, None)


@pytest.mark.parametrize("cookie", ["penstock=", "penstock=hunter2", "penstock=pk_abcdefgh_" + "A" * 43, "other=1"])
async def test_a_cookie_that_is_no_session_lets_nobody_in(client: Client, cookie: str) -> None:
    problem(await client.get("/v1/jobs", headers=PAGE | {"cookie": cookie}), 401, "unauthorized")


async def test_a_rotated_session_still_dies_with_its_key(client: Client, engine: Engine) -> None:
    key, admin = await create_key(engine, KeyScope.JOBS_READ), await create_key(engine, KeyScope.ADMIN)
    item = await sign_in(client, key.key)
    client.cookies.clear()
    with with_key(client, admin.key):
        fresh = (await client.post(f"/v1/keys/{item['key']}/rotate", json={})).json()
    assert fresh["parent"] == key.id
