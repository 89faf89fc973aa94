"""Uploads, inputs and outputs."""

import hashlib
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from penstock.engine import Engine
from penstock.model.errors import CorruptObject
from tests.http.api_calls import UNKNOWN_JOB, Client, Json, RawRequest, claim, job, problem, settle, submit

CSV = b"a,b\n1,2\n"


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def upload(client: Client, body: bytes = CSV, content_type: str = "text/csv") -> Json:
    answer = await client.post("/v1/uploads", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == 201, answer.text
    uploaded: Json = answer.json()
    return uploaded


async def job_with_input(client: Client, name: str, body: bytes = CSV) -> Json:
    uploaded = await upload(client, body)
    return await submit(client, inputs={name: uploaded["id"]})


async def test_an_upload_becomes_an_input_and_comes_back_as_an_attachment(client: Client) -> None:
    item = await job_with_input(client, "in.csv")
    assert item["inputs"] == [{"name": "in.csv", "size": 8, "digest": digest(CSV), "content_type": "text/csv"}]
    answer = await client.get(f"/v1/jobs/{item['id']}/inputs/in.csv")
    assert (answer.status_code, answer.content) == (200, CSV)
    assert answer.headers["content-type"] == "text/csv"
    assert answer.headers["content-length"] == "8"
    assert answer.headers["content-disposition"] == "attachment; filename=\"in.csv\"; filename*=UTF-8''in.csv"
    assert answer.headers["etag"] == f'"{digest(CSV)}"'
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_where_there_is_no_way_past_the_server_it_says_so(client: Client) -> None:
    answer = await client.post("/v1/uploads/direct", json={"digest": digest(CSV), "size": len(CSV)})
    assert (answer.status_code, set(answer.json().values())) == (200, {None})
    item = await job_with_input(client, "in.csv")
    answer = await client.get(f"/v1/jobs/{item['id']}/inputs/in.csv", params={"direct": "true"})
    assert (answer.status_code, answer.content) == (200, CSV)


async def test_head_of_a_file_gives_its_headers_alone(client: Client) -> None:
    item = await job_with_input(client, "in.csv")
    answer = await client.head(f"/v1/jobs/{item['id']}/inputs/in.csv")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "8")


async def test_an_empty_file_and_one_of_many_chunks_come_back_whole(client: Client) -> None:
    for body in (b"", bytes(range(256)) * 400):
        item = await job_with_input(client, "file", body)
        assert (await client.get(f"/v1/jobs/{item['id']}/inputs/file")).content == body


@pytest.mark.parametrize("name", ['a";x="b', "ä ö.txt", "input-0", "日本.csv", "%2e%2e", "ä" * 127])
async def test_a_strange_name_cannot_leave_its_header(client: Client, name: str) -> None:
    item = await job_with_input(client, name)
    answer = await client.get(f"/v1/jobs/{item['id']}/inputs/{_quoted(name)}")
    assert (answer.status_code, answer.content) == (200, CSV)
    assert "set-cookie" not in answer.headers
    disposition = answer.headers["content-disposition"]
    plain, _, exact = disposition.removeprefix('attachment; filename="').partition("\"; filename*=UTF-8''")
    assert plain.replace("_", "").replace(".", "").replace("-", "").isalnum() or set(plain) <= set("_.-")
    assert exact == _quoted(name)


@pytest.mark.parametrize(
    "name", ["a\0b", "a\r\nSet-Cookie: x=1", "x\ty", "x\n", "\x9b", "x" * 256, "ä" * 128, "日" * 86]
)
async def test_a_name_that_no_file_can_have_is_refused(client: Client, name: str) -> None:
    uploaded = await upload(client)
    answer = await client.post("/v1/jobs", json={"type": "other", "inputs": {name: uploaded["id"]}})
    problem(answer, 422, "invalid")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", ".", "a\\b", ""])
async def test_a_name_that_could_be_a_path_is_refused(client: Client, name: str) -> None:
    uploaded = await upload(client)
    answer = await client.post("/v1/jobs", json={"type": "other", "inputs": {name: uploaded["id"]}})
    problem(answer, 422, "invalid")


@pytest.mark.parametrize("name", ["%2e%2e%2fpenstock.db", "..%5c..", "%00", "nothing", "..%2f..%2fpenstock.db"])
async def test_asking_for_a_path_finds_nothing(client: Client, name: str) -> None:
    item = await job_with_input(client, "in.csv")
    for kind in ("inputs", "outputs"):
        problem(await client.get(f"/v1/jobs/{item['id']}/{kind}/{name}"), 404, "not_found")


async def test_an_unknown_upload_is_refused(client: Client) -> None:
    for upload_id in (UNKNOWN_JOB, "nonsense", "../../penstock.db"):
        answer = await client.post("/v1/jobs", json={"type": "other", "inputs": {"a": upload_id}})
        assert "/v1/uploads" in problem(answer, 422, "invalid")


@pytest.mark.parametrize("header", ["content-length", "transfer-encoding"])
async def test_an_upload_above_the_limit_is_too_large(app: ASGIApp, header: str) -> None:
    announced = [(b"content-length", b"102401")] if header == "content-length" else []
    raw = RawRequest(app, "POST", "/v1/uploads", [(b"content-type", b"text/csv"), *announced])
    for _ in range(4):
        raw.says(b"x" * 32 * 1024, more=True)
    await raw.run()
    assert raw.status == 413


async def test_an_upload_is_checked_against_its_announced_digest(client: Client) -> None:
    right = await client.post("/v1/uploads", content=CSV, headers={"Digest-SHA256": digest(CSV).upper()})
    assert (right.status_code, right.json()["digest"]) == (201, digest(CSV))
    for announced in (digest(b"other"), "abc", ""):
        answer = await client.post("/v1/uploads", content=CSV, headers={"Digest-SHA256": announced})
        assert "Digest-SHA256" in problem(answer, 422, "invalid")


@pytest.mark.parametrize("content_type", ["nonsense", "text/html\x7f", "a/b" + "c" * 300, "text/", "tëxt/csv"])
async def test_a_content_type_that_cannot_be_given_back_is_refused(client: Client, content_type: str) -> None:
    headers = {b"Content-Type": content_type.encode("latin-1")}
    problem(await client.post("/v1/uploads", content=CSV, headers=headers), 422, "invalid")


async def test_an_output_is_seen_only_after_its_settle(client: Client) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    link = await _write(client, claimed, b"report")
    assert link.status_code == 201
    url = f"/v1/jobs/{item['id']}/outputs/report.txt"
    problem(await client.get(url), 404, "not_found")
    await settle(client, claimed, outputs=[{"name": "report.txt", "object": link.json()}])
    assert (await job(client, item["id"]))["state"] == "succeeded"
    answer = await client.get(url)
    assert (answer.content, answer.headers["content-type"]) == (b"report", "text/plain")


async def test_an_output_needs_a_lease_and_its_digest(client: Client) -> None:
    await submit(client)
    (claimed,) = await claim(client)
    problem(await _write(client, {**claimed, "fence": 7}, b"x"), 409, "lease_lost")
    problem(await _write(client, {**claimed, "job": UNKNOWN_JOB}, b"x"), 404, "not_found")
    problem(await _write(client, {**claimed, "fence": 0}, b"x"), 422, "invalid")
    problem(await _write(client, claimed, b"x", announced=digest(b"y")), 422, "invalid")
    url = f"/v1/workers/w1/outputs/{claimed['job']}/{claimed['fence']}/0"
    assert "required" in problem(await client.put(url, content=b"x"), 422, "invalid")


async def test_a_file_that_was_damaged_is_never_given_as_whole(
    client: Client, engine: Engine, app: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await job_with_input(client, "in.csv", b"good" * 1000)
    monkeypatch.setattr(engine.files, "_objects", _Damaged())
    raw = RawRequest(app, "GET", f"/v1/jobs/{item['id']}/inputs/in.csv")
    await raw.run()
    sent = b"".join(message.get("body", b"") for message in raw.sent)
    assert len(sent) < 4000
    assert raw.sent[-1].get("more_body") is True


async def test_a_file_that_is_gone_is_a_problem_not_a_broken_download(client: Client, engine: Engine) -> None:
    item = await job_with_input(client, "in.csv")
    await engine.objects.delete(f"jobs/{item['id']}")
    problem(await client.get(f"/v1/jobs/{item['id']}/inputs/in.csv"), 404, "not_found")


class _Damaged:
    """Objects whose last bytes turn out wrong only when all have been read."""

    async def read(self, link):
        yield b"good" * 500
        yield b"evil" * 500
        raise CorruptObject("its bytes do not match their digest")


def _quoted(name: str) -> str:
    return quote(name, safe="")


async def _write(client: Client, claimed: Json, body: bytes, announced: str | None = None):
    return await client.put(
        f"/v1/workers/w1/outputs/{claimed['job']}/{claimed['fence']}/0",
        content=body,
        headers={"Digest-SHA256": announced or digest(body), "Content-Type": "text/plain"},
    )
