"""JSON that one reader would take differently from another is refused at the door."""

import asyncio

import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.config import Settings
from tests.http.api_calls import Client, RawRequest, problem

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut short"),
        pytest.param(b"{} {}", id="two values"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b'{"type":"other",}', id="trailing comma"),
        pytest.param(b'{"type":"other","params":NaN}', id="NaN"),
        pytest.param(b'{"type":"other","params":[-Infinity]}', id="infinity"),
        pytest.param(b'{"type":"other","params":1e999}', id="beyond a double"),
        pytest.param(b'{"type":"other","params":18446744073709551616}', id="beyond 64 bits"),
        pytest.param(b'{"type":"other","params":9223372036854775808}', id="beyond signed 64 bits"),
        pytest.param(b'{"type":"other","params":"\xff"}', id="not UTF-8"),
        pytest.param(rb'{"type":"other","params":"\ud800"}', id="lone surrogate"),
        pytest.param(b'{"type":"other","type":"add"}', id="double key"),
        pytest.param(b'{"type":"other","params":{"x":[{"a":1,"b":2,"a":3}]}}', id="double key, deep inside"),
        pytest.param(rb'{"type":"other","params":{"a":1,"\u0061":2}}', id="double key, escaped"),
    ],
)
async def test_what_is_not_strict_json_is_malformed(client: Client, body: bytes) -> None:
    problem(await client.post("/v1/jobs", content=body, headers=JSON), 400, "malformed")


async def test_the_double_key_is_named(client: Client) -> None:
    answer = await client.post("/v1/jobs", content=b'{"type":"other","params":{"width":1,"width":2}}', headers=JSON)
    assert "'width'" in problem(answer, 400, "malformed")


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("levels", [17, 200, 20_000])
async def test_deep_nesting_is_malformed_however_deep(client: Client, opening: bytes, levels: int) -> None:
    closing = opening.replace(b'"a":', b"")[::-1].translate(bytes.maketrans(b"[{", b"]}"))
    nested = (opening * levels + b"1" + closing * levels)[: 60 * 1024]
    answer = await client.post("/v1/jobs", content=b'{"type":"other","params":' + nested + b"}", headers=JSON)
    problem(answer, 400, "malformed")


async def test_brackets_in_strings_are_no_nesting(client: Client) -> None:
    brackets = '[{"\\' * 100
    answer = await client.post("/v1/jobs", json={"type": "other", "params": {"text": brackets, "list": [[]] * 100}})
    assert (answer.status_code, answer.json()["params"]["text"]) == (201, brackets)


async def test_brackets_in_strings_hide_no_nesting(client: Client) -> None:
    nested = b'{"x":' + b'["]",' * 14 + b"1" + b"]" * 14 + b"}"
    answer = await client.post("/v1/jobs", content=b'{"type":"other","params":' + nested + b"}", headers=JSON)
    assert answer.status_code == 201
    nested = b'{"x":' + b'["]]]]",' * 15 + b"1" + b"]" * 15 + b"}"
    answer = await client.post("/v1/jobs", content=b'{"type":"other","params":' + nested + b"}", headers=JSON)
    assert "limits.depth" in problem(answer, 400, "malformed")


async def test_numbers_that_fit_are_kept_as_they_were_written(client: Client) -> None:
    params = b'{"x":[-9223372036854775808,9223372036854775807,1e308,0.12345678901234567890123]}'
    answer = await client.post("/v1/jobs", content=b'{"type":"other","params":' + params + b"}", headers=JSON)
    assert answer.status_code == 201
    assert params in answer.content


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "type"),
        ({"type": "other", "prioritty": 1}, "prioritty"),
        ({"type": "other", "priority": 10}, "priority"),
        ({"type": "other", "priority": "high"}, "priority"),
        ({"type": "../other"}, "type"),
        ({"type": "other", "retry_policy": {"kind": "fixed", "tries": 3}}, "tries"),
        ({"type": "other", "scheduled_at": "2030-01-01T00:00:00"}, "scheduled_at"),
        ({"type": "other", "tags": ["x"] * 33}, "tags"),
        ({"type": "other", "delay_seconds": 1, "scheduled_at": "2030-01-01T00:00:00Z"}, "delay_seconds"),
    ],
)
async def test_a_field_that_does_not_fit_is_refused_by_name(client: Client, body: object, named: str) -> None:
    assert named in problem(await client.post("/v1/jobs", json=body), 422, "invalid")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null"])
async def test_a_body_that_is_no_object_is_refused(client: Client, body: bytes) -> None:
    problem(await client.post("/v1/jobs", content=body, headers=JSON), 422, "invalid")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
async def test_a_body_that_is_not_announced_as_json_is_refused(client: Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await client.post("/v1/jobs", content=b'{"type":"other"}', headers=headers)
    assert "application/json" in problem(answer, 415, "malformed")


async def test_a_charset_beside_the_content_type_is_fine(client: Client) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/v1/jobs", content=b'{"type":"other"}', headers=headers)).status_code == 201


async def test_an_announced_length_above_the_limit_is_refused_before_a_byte_is_read(app: ASGIApp) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"65537")]
    raw = RawRequest(app, "POST", "/v1/jobs", headers)
    await raw.run()
    assert raw.status == 413


async def test_a_body_without_a_length_is_cut_off_at_the_limit(app: ASGIApp) -> None:
    raw = RawRequest(app, "POST", "/v1/jobs", [(b"content-type", b"application/json")])
    for _ in range(3):
        raw.says(b" " * 32 * 1024, more=True)
    await raw.run()
    assert raw.status == 413


async def test_a_body_in_pieces_is_put_together(app: ASGIApp, client: Client) -> None:
    raw = RawRequest(app, "POST", "/v1/jobs", [(b"content-type", b"application/json")])
    raw.says(b'{"type":', more=True).says(b"", more=True).says(b'"other"}')
    await raw.run()
    assert raw.status == 201


async def test_a_client_that_hangs_up_in_mid_body_adds_nothing(app: ASGIApp, client: Client) -> None:
    raw = RawRequest(app, "POST", "/v1/jobs", [(b"content-type", b"application/json")])
    await asyncio.wait_for(raw.says(b'{"type":"other"}', more=True).hangs_up().run(), 5)
    assert raw.sent == []
    assert (await client.get("/v1/jobs")).json()["jobs"] == []


class TestSoManyValues:
    """A body may have so many strings, lists and objects."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, limits=replace(settings.limits, values=2000))

    @pytest.mark.parametrize(
        ("params", "status"),
        [
            pytest.param(b"[" + b'"",' * 1_980 + b"1]", 201, id="strings"),
            pytest.param(b"[" + b'"",' * 2_000 + b"1]", 413, id="too many strings"),
            pytest.param(b"[" + b"[]," * 2_000 + b"1]", 413, id="too many lists"),
            pytest.param(b"[" + b"{}, " * 2_000 + b"1]", 413, id="too many objects"),
            pytest.param(b"{" + b",".join(b'"%d":1' % n for n in range(2_000)) + b"}", 413, id="too many keys"),
            pytest.param(b"[" + b"1," * 20_000 + b"1]", 201, id="numbers"),
            pytest.param(rb'["[[{{' + rb"[{\"" * 8_000 + rb'\\"]', 201, id="inside a string"),
            pytest.param(rb'["\\","\\",' + rb'"\\",' * 2_000 + b"1]", 413, id="backslashes before quotes"),
        ],
    )
    async def test_more_is_too_large(self, client: Client, params: bytes, status: int) -> None:
        answer = await client.post("/v1/jobs", content=b'{"type":"other","params":{"x":' + params + b"}}", headers=JSON)
        assert answer.status_code == status, answer.text[:200]
        if status == 413:
            assert "limits.values" in problem(answer, 413, "too_large")
