"""A server that needs no API key answers programs of its machine, and no web page that somebody there looks at."""

import random
import re
from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.api import create_app
from penstock.api.app import OPERATIONS
from penstock.broker.memory import MemoryBroker
from penstock.client import AsyncClient
from penstock.client.http import AsyncHttpTransport
from penstock.config import ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.model.keys import KeyScope
from penstock.objects.folder import FolderObjects
from penstock.store.sqlite import SqliteStore
from tests.http.api_calls import Client, RawRequest, problem, submit
from tests.http.api_keys import FOREIGN, create_key, with_key

Headers = list[tuple[bytes, bytes]]

HOST = (b"host", b"localhost:7373")
DIGEST_OF_X = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
"""The SHA-256 of "x"."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, server=ServerSettings(hosts=("Jobs.Example", "2001:db8::7", "10.1.2.3")))


async def asked(app: ASGIApp, headers: Iterable[tuple[bytes, bytes]], method: str = "GET") -> int:
    """The status of a request for the jobs with exactly these headers."""
    raw = RawRequest(app, method, "/v1/jobs", headers, host=None).says(b"")
    await raw.run()
    return raw.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:7373",
        "LocalHost:7373",
        "localhost.:7373",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.8.8.8:7373",
        "[::1]",
        "[::1]:7373",
        "[0:0:0:0:0:0:0:1]:7373",
        "[::ffff:127.0.0.1]:7373",
        "jobs.example",
        "JOBS.EXAMPLE.:8443",
        "10.1.2.3:7373",
        "[2001:DB8:0::7]:7373",
    ],
)
async def test_names_of_this_machine_and_of_the_settings_are_answered_on_any_port(app: ASGIApp, host: str) -> None:
    assert await asked(app, [(b"host", host.encode())]) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":7373",
        "penstock",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:7373",
        "evil.jobs.example",
        "0.0.0.0:7373",
        "192.168.1.7",
        "10.1.2.4",
        "[::]:7373",
        "[::2]",
        "[::ffff:10.9.9.9]",
        "[::1",
        "::1",
        "[::1%25lo]",
        "localhost:port",
        "localhost:7373:1",
        "localhost..",
        "localhost, evil.example",
        "evil.example@localhost",
        "localhost/evil.example",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "127.0.0.01",
        "locÂlhost",
        "localhost\x00",
    ],
)
async def test_any_other_host_is_refused_as_a_name_that_somebody_pointed_here(app: ASGIApp, host: str) -> None:
    assert await asked(app, [(b"host", host.encode())]) == 403


@pytest.mark.parametrize(
    "hosts", [[], [b"localhost", b"evil.example"], [b"evil.example", b"localhost"], [b"localhost", b"localhost"]]
)
async def test_no_host_or_several_are_refused(app: ASGIApp, hosts: list[bytes]) -> None:
    assert await asked(app, [(b"host", host) for host in hosts]) == 403


async def test_the_problem_names_the_host_and_what_to_do(client: Client) -> None:
    told = problem(await client.get("/v1/jobs", headers={"host": "evil.example"}), 403, "foreign_host")
    assert "'evil.example'" in told
    assert "server.hosts" in told


@pytest.mark.parametrize(
    "headers",
    [
        [(b"sec-fetch-site", b"same-origin")],
        [(b"sec-fetch-site", b"none")],
        [(b"origin", b"http://localhost:7373")],
        [(b"origin", b"http://LOCALHOST:7373"), (b"sec-fetch-site", b"same-origin")],
    ],
)
async def test_a_page_of_this_server_and_a_typed_address_are_answered(app: ASGIApp, headers: Headers) -> None:
    assert await asked(app, [HOST, *headers]) == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (b"jobs.example", b"https://jobs.example"),
        (b"jobs.example:443", b"https://jobs.example"),
        (b"localhost", b"http://localhost"),
        (b"localhost", b"http://localhost:80"),
        (b"[::1]:7373", b"http://[::1]:7373"),
    ],
)
async def test_an_origin_is_ours_whether_its_port_is_said_or_implied(app: ASGIApp, host: bytes, origin: bytes) -> None:
    assert await asked(app, [(b"host", host), (b"origin", origin)]) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [(b"sec-fetch-site", b"cross-site")],
        [(b"sec-fetch-site", b"same-site")],
        [(b"sec-fetch-site", b"")],
        [(b"sec-fetch-site", b"same-origin"), (b"sec-fetch-site", b"cross-site")],
        [(b"origin", b"https://evil.example")],
        [(b"origin", b"null")],
        [(b"origin", b"")],
        [(b"origin", b"http://localhost:3000")],
        [(b"origin", b"http://localhost")],
        [(b"origin", b"http://127.0.0.1:7373")],
        [(b"origin", b"file://localhost:7373")],
        [(b"origin", b"http://localhost:7373"), (b"origin", b"https://evil.example")],
        [(b"origin", b"http://localhost:7373"), (b"sec-fetch-site", b"cross-site")],
        [(b"origin", b"https://evil.example"), (b"authorization", b"Basic b3BzOmh1bnRlcjI=")],
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE", "OPTIONS"])
async def test_pages_of_other_origins_are_refused_whatever_they_ask(
    app: ASGIApp, headers: Headers, method: str
) -> None:
    assert await asked(app, [HOST, (b"content-type", b"application/json"), *headers], method) == 403


async def test_the_problem_says_that_a_key_would_do(client: Client, engine: Engine) -> None:
    page = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert "API key" in problem(await client.get("/v1/jobs", headers=page), 403, "cross_origin")
    with with_key(client, (await create_key(engine, KeyScope.JOBS_READ)).key):
        assert (await client.get("/v1/jobs", headers=page)).status_code == 200
        assert (await client.get("/v1/jobs", headers={**page, "host": "evil.example"})).status_code == 200
    with with_key(client, FOREIGN):
        problem(await client.get("/v1/jobs", headers=page), 401, "unauthorized")


@pytest.mark.parametrize("form", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Text/Plain"])
async def test_nothing_that_a_form_can_send_does_anything(client: Client, form: str) -> None:
    item = await submit(client)
    for path in (f"/v1/jobs/{item['id']}/cancel", "/v1/queues/other/pause", "/v1/uploads", "/v1/jobs"):
        answer = await client.post(path, content=b"x", headers={"content-type": form})
        assert "form" in problem(answer, 415, "malformed")
    assert (await client.get(f"/v1/jobs/{item['id']}")).json()["state"] == "queued"


async def test_nothing_that_a_script_can_send_without_saying_what_it_is_does_anything(app: ASGIApp) -> None:
    for body in ([(b"content-length", b"1")], [(b"transfer-encoding", b"chunked")]):
        raw = RawRequest(app, "POST", "/v1/queues/other/pause", [HOST, *body], host=None).says(b"x")
        await raw.run()
        assert raw.status == 415


async def test_a_post_without_a_body_needs_no_content_type(client: Client) -> None:
    item = await submit(client)
    assert (await client.post(f"/v1/jobs/{item['id']}/cancel")).json()["state"] == "cancelled"


async def test_an_upload_is_told_by_its_own_type_or_its_digest(client: Client) -> None:
    text = {"content-type": "text/plain"}
    problem(await client.post("/v1/uploads", content=b"x", headers=text), 415, "malformed")
    told = {**text, "digest-sha256": DIGEST_OF_X}
    assert (await client.post("/v1/uploads", content=b"x", headers=told)).json()["content_type"] == "text/plain"
    assert (await client.post("/v1/uploads", content=b"x", headers={"content-type": "text/csv"})).status_code == 201


async def test_the_sdk_uploads_text_without_a_key(app: ASGIApp) -> None:
    async with AsyncClient(transport=AsyncHttpTransport("http://localhost", httpx2.ASGITransport(app=app))) as sdk:
        kept = await sdk.upload("poem.txt", b"x")
    assert (kept.content_type, kept.digest) == ("text/plain", DIGEST_OF_X)


async def test_every_operation_is_checked_also_those_for_everyone(client: Client) -> None:
    evil = {"host": "evil.example", "content-type": "application/json"}
    for one in OPERATIONS:
        answer = await client.request(one.method, re.sub(r"{\w+}", "x", one.path), headers=evil)
        problem(answer, 403, "foreign_host")
    problem(await client.get("/nowhere", headers=evil), 403, "foreign_host")


async def test_no_answer_lets_a_page_of_another_origin_read_it(client: Client) -> None:
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answers = [
        await client.options("/v1/jobs", headers=asks),
        await client.options("/v1/jobs"),
        await client.get("/v1/jobs"),
        await client.get("/v1/jobs", headers={"origin": "http://localhost"}),
    ]
    for answer in answers:
        assert [name for name in answer.headers if name.startswith("access-control-")] == []


async def test_keys_are_made_and_listed_only_with_a_key(client: Client, engine: Engine) -> None:
    asks = [
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"name": "mine", "scopes": ["admin"]}),
        ("POST", "/v1/keys/aaaaaaaa/rotate", {}),
        ("DELETE", "/v1/keys/aaaaaaaa", None),
        ("POST", "/v1/session", {}),
    ]
    for method, path, body in asks:
        told = problem(await client.request(method, path, json=body), 401, "unauthorized")
        assert "penstock keys create --direct" in told
    assert await engine.keys.list() == []
    with with_key(client, (await create_key(engine, KeyScope.ADMIN)).key):
        assert (await client.get("/v1/keys")).status_code == 200
    document = (await client.get("/openapi.json")).json()
    for path, there in document["paths"].items():
        for one in there.values():
            keyed_alone = path.startswith("/v1/keys") or one["operationId"] == "open_session"
            assert ({} in one["security"]) == (not keyed_alone and one["security"] != []), path


async def test_where_every_request_needs_a_key_the_host_is_the_proxy_s_business(tmp_path: Path) -> None:
    clock = SystemClock()
    store = await SqliteStore.open(tmp_path / "keyed.db", clock=clock)
    keyed = Settings(server=ServerSettings(keys="required"))
    engine = Engine(store, MemoryBroker(), FolderObjects(tmp_path, clock), keyed, clock, random.Random(7))
    try:
        app = create_app(engine)
        page = [(b"host", b"evil.example"), (b"origin", b"https://evil.example")]
        assert await asked(app, page) == 401
        key = (await create_key(engine, KeyScope.JOBS_READ)).key
        assert await asked(app, [*page, (b"authorization", f"Bearer {key}".encode())]) == 200
    finally:
        await engine.close()
