"""Whatever goes wrong is answered as a problem with a stable code, and never with a traceback."""

import json
import logging

import pytest

from penstock.cli.process import JsonFormatter
from penstock.engine import Engine
from penstock.model.errors import CorruptObject, ShuttingDown, StoreUnavailable
from tests.http.api_calls import Client, problem


async def test_an_unknown_path_is_not_found(client: Client) -> None:
    for path in ("/", "/v1", "/v1/job", "/v1/jobs/", "/v1/jobs/a/b/c/d", "/v2/jobs"):
        problem(await client.get(path), 404, "not_found")


async def test_a_wrong_method_is_answered_with_those_allowed(client: Client) -> None:
    answer = await client.delete("/v1/jobs")
    problem(answer, 405, "refused")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    answer = await client.get("/v1/jobs/batch")
    problem(answer, 405, "refused")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is full"), ShuttingDown("stopping")])
async def test_what_may_succeed_later_is_503_and_says_when(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(engine.store, "submit", _raising(error))
    answer = await client.post("/v1/jobs", json={"type": "other"})
    problem(answer, 503, error.code)  # type: ignore[attr-defined]
    assert answer.headers["retry-after"] == "1"


async def test_an_unready_server_says_so_but_is_alive(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/readyz")).json()["status"] == "ok"
    monkeypatch.setattr(engine.store, "probe", _raising(StoreUnavailable("the disk is full")))
    assert "disk" in problem(await client.get("/readyz"), 503, "store_unavailable")
    assert (await client.get("/healthz")).json()["status"] == "ok"


async def test_a_server_that_is_about_to_stop_is_alive_but_not_ready(client: Client, engine: Engine) -> None:
    engine.leaving = True
    assert "stopping" in problem(await client.get("/readyz"), 503, "shutting_down")
    assert (await client.get("/healthz")).json()["status"] == "ok"


async def test_what_nobody_foresaw_is_500_without_its_words_and_logged(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine.store, "submit", _raising(RuntimeError("secret thing")))
    answer = await client.post("/v1/jobs", json={"type": "other", "params": {"password": "hunter2"}})
    problem(answer, 500, "error")
    assert "secret" not in answer.text
    assert "secret thing" in caplog.text
    assert "hunter2" not in caplog.text


async def test_our_own_corruption_is_500_with_its_code(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.store, "submit", _raising(CorruptObject("object is not what was stored")))
    problem(await client.post("/v1/jobs", json={"type": "other"}), 500, "corrupt_object")


async def test_requests_are_logged_for_debugging_only_and_without_bodies(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.api"):
        await client.post("/v1/jobs", json={"type": "other", "params": {"password": "hunter2"}})
    records = [record for record in caplog.records if record.name == "penstock.api"]
    assert [record.levelno for record in records] == [logging.DEBUG]
    assert "POST /v1/jobs 201" in records[0].getMessage()
    assert "hunter2" not in caplog.text


async def test_every_answer_names_its_request_as_the_client_did_or_anew(client: Client) -> None:
    for path in ("/healthz", "/nowhere", "/metrics"):
        mine = await client.get(path, headers={"X-Request-Id": "web-7f3a"})
        first, second = [(await client.get(path)).headers["x-request-id"] for _ in range(2)]
        refused = await client.get(path, headers={"X-Request-Id": "x" * 129})
        assert mine.headers["x-request-id"] == "web-7f3a"
        assert len({first, second, refused.headers["x-request-id"], "x" * 129}) == 4


async def test_what_a_request_caused_is_logged_under_its_id(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caplog.handler, "formatter", JsonFormatter())
    monkeypatch.setattr(engine.store, "submit", _raising(RuntimeError("boom")))
    await client.post("/v1/jobs", json={"type": "other"}, headers={"X-Request-Id": "web-7f3a"})
    (told,) = [json.loads(line) for line in caplog.text.splitlines() if "failed" in line]
    assert (told["request"], told["part"], told["level"]) == ("web-7f3a", "api", "error")


def _raising(error: Exception):
    async def fail(*_: object, **__: object) -> None:
        raise error

    return fail
