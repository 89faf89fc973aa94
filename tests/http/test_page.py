"""The page as a browser gets it: its headers, its files, its addresses, and what a server without it says."""

import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.types import ASGIApp

from penstock.api import create_app
from penstock.dashboard import PageApp
from penstock.engine import Engine
from tests.http.api_calls import Client

SCRIPT = b"import './chunk-AAAAAAAA.js'"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A page of three files."""
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "index.html").write_bytes(b'<!doctype html><base href="./"><script src="main-AAAAAAAA.js"></script>')
    for name, content in (("main-AAAAAAAA.js", SCRIPT), ("main-BBBBBBBB.css", b"body{}")):
        (folder / name).write_bytes(content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    types = {"main-AAAAAAAA.js": "text/javascript; charset=utf-8", "main-BBBBBBBB.css": "text/css; charset=utf-8"}
    (folder / "manifest.json").write_text(json.dumps({"sources": "0", "files": types}))
    return folder


@pytest.fixture
def app(engine: Engine, built: Path) -> ASGIApp:
    return PageApp(create_app(engine), built)


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[Client]:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("path", ["/ui/", "/ui/jobs", "/ui/main-AAAAAAAA.js", "/ui/main-CCCCCCCC.js", "/ui"])
async def test_every_answer_forbids_scripts_and_styles_but_its_own(client: Client, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/ui/", "./"),
        ("/ui/jobs", "./"),
        ("/ui/jobs/", "../"),
        ("/ui/jobs/a", "../"),
        ("/ui/fleets/a/what-if", "../../"),
    ],
)
async def test_the_base_is_relative_so_that_any_prefix_of_a_proxy_is_in_it(
    client: Client, path: str, base: str
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    assert re.findall('<base href="([^"]*)">', answer.text) == [base]


async def test_files_are_compressed_and_kept_for_good(client: Client) -> None:
    answer = await client.get("/ui/main-AAAAAAAA.js", headers={"accept-encoding": "br, gzip;q=0.5"})
    assert (answer.headers["content-encoding"], answer.content) == ("gzip", SCRIPT)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "accept-encoding"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = await client.get("/ui/main-AAAAAAAA.js", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert plain.content == SCRIPT


@pytest.mark.parametrize("path", ["/ui/main-CCCCCCCC.js", "/ui/other.css", "/ui/main-AAAAAAAA.js.map"])
async def test_a_file_that_is_not_of_the_page_is_not_found(client: Client, path: str) -> None:
    assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize("path", ["/ui/manifest.json", "/ui/main-AAAAAAAA.js.gz", "/ui/%2e%2e/built_files.py"])
async def test_only_files_of_the_manifest_are_given(client: Client, path: str) -> None:
    assert (await client.get(path)).text.startswith("<!doctype html>")


async def test_a_head_is_answered_without_a_body(client: Client) -> None:
    answer = await client.head("/ui/main-BBBBBBBB.css", headers={"accept-encoding": "identity"})
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "6", b"")


async def test_browsers_are_sent_to_the_page_and_programs_are_answered_as_ever(client: Client) -> None:
    answer = await client.get("/", headers={"accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["location"]) == (307, "ui/")
    assert (await client.get("/ui")).headers["location"] == "ui/"
    assert (await client.get("/")).status_code == 404
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.post("/ui/")).status_code == 404


async def test_a_server_without_the_page_says_how_to_build_it(engine: Engine, tmp_path: Path) -> None:
    transport = httpx2.ASGITransport(app=PageApp(create_app(engine), tmp_path / "nowhere"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/ui/jobs")
        assert (answer.status_code, "make page" in answer.text) == (503, True)
        assert (await client.get("/v1/jobs")).status_code == 200


async def test_a_page_that_is_built_anew_is_given_at_once(client: Client, built: Path) -> None:
    assert (await client.get("/ui/")).status_code == 200
    (built / "index.html").write_bytes(b'<base href="./">newer')
    manifest = built / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert (await client.get("/ui/")).text.endswith("newer")
