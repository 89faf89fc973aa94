"""Functions on Lambda answer the events of API Gateway, each its own routes, over an engine that is kept."""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.api.app import OPERATIONS
from penstock.functions import routes
from penstock.functions.host import LONGEST_WAIT, FunctionHost, read_settings
from penstock.model.errors import InvalidSetting, StoreUnavailable
from penstock.model.keys import KeyScope
from penstock.model.wire.keys import KeyRequest
from tests.gateway import SERVED, FunctionClient, gateway_event, small_settings

NOBODY = "01900000-0000-7000-8000-000000000000"
SHARED = {"PENSTOCK_STORE_URL": "postgresql://db/penstock", "PENSTOCK_BROKER_URL": "redis://broker"}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FunctionHost]:
    host = FunctionHost(small_settings(tmp_path))
    yield host
    host.close()


@pytest.fixture
def client(host: FunctionHost) -> FunctionClient:
    return FunctionClient(host)


def test_a_job_is_added_read_and_cancelled_by_three_functions(client: FunctionClient) -> None:
    job = client.add(params={"to": "you"})
    found = client.ask("query", "GET", f"/v1/jobs/{job['id']}")
    assert (found["statusCode"], found["body"]["params"]) == (200, {"to": "you"})
    assert found["headers"]["etag"] == '"1"'
    cancelled = client.ask("cancel", "POST", f"/v1/jobs/{job['id']}/cancel")
    assert cancelled["body"]["state"] == "cancelled"
    listed = client.ask("query", "GET", "/v1/jobs", query="state=cancelled&limit=5")
    assert [one["id"] for one in listed["body"]["jobs"]] == [job["id"]]


def test_a_batch_is_added(client: FunctionClient) -> None:
    answer = client.ask("add", "POST", "/v1/jobs/batch", {"jobs": [{"type": "mail"}] * 3})
    assert answer["statusCode"] == 200
    assert client.ask("rest", "GET", "/v1/queues")["body"]["queues"][0]["jobs"] == {"queued": 3}


def test_every_operation_is_served_by_exactly_one_function() -> None:
    served = [one for operations in SERVED.values() for one in operations]
    assert sorted(one.name for one in served) == sorted(one.name for one in OPERATIONS)


@pytest.mark.parametrize("function", SERVED)
def test_a_function_refuses_the_routes_of_the_others(client: FunctionClient, function: str) -> None:
    foreign = [one for name, served in SERVED.items() if name != function for one in served]
    for one in foreign:
        path = one.path.replace("{job}", NOBODY).replace("{", "").replace("}", "")
        answer = client.ask(function, one.method, path)
        assert (answer["statusCode"], answer["body"]["code"]) == (404, "not_found"), one.path
        assert f"the function {function} does not serve" in answer["body"]["detail"]


@pytest.mark.parametrize("function", SERVED)
def test_without_a_key_nothing_is_answered(client: FunctionClient, function: str) -> None:
    paths = {"add": ("POST", "/v1/jobs"), "query": ("GET", "/v1/jobs"), "rest": ("GET", "/v1/queues")}
    method, path = paths.get(function, ("POST", f"/v1/jobs/{NOBODY}/cancel"))
    answer = client.host.answer(function, SERVED[function], gateway_event(method, path, {"type": "mail"}), None)
    assert answer["statusCode"] == 401
    assert answer["headers"]["content-type"] == "application/problem+json"
    assert json.loads(answer["body"])["code"] == "unauthorized"


def test_a_stream_is_not_served_and_the_problem_says_where_it_is(client: FunctionClient) -> None:
    job = client.add()
    wanted = {"accept": "text/event-stream"}
    for function, path in (("query", f"/v1/jobs/{job['id']}/events"), ("rest", "/v1/events"), ("rest", "/v1/live")):
        answer = client.ask(function, "GET", path, headers=wanted)
        assert (answer["statusCode"], answer["body"]["code"]) == (501, "not_served")
        assert "penstock api" in answer["body"]["detail"]
        assert client.ask(function, "GET", path)["statusCode"] == 200


def test_a_wait_ends_before_the_gateway_gives_up(client: FunctionClient) -> None:
    job = client.add()
    answer = client.ask("query", "GET", f"/v1/jobs/{job['id']}", query="wait=3600")
    assert (answer["statusCode"], answer["body"]["state"]) == (200, "queued")


def test_settings_come_from_the_environment_with_keys_and_short_waits() -> None:
    settings = read_settings(SHARED | {"PENSTOCK_LIMITS_WAIT_SECONDS": "300"})
    assert settings.server.needs_keys
    assert settings.limits.wait_seconds == LONGEST_WAIT
    assert read_settings(SHARED | {"PENSTOCK_LIMITS_WAIT_SECONDS": "3"}).limits.wait_seconds == 3


@pytest.mark.parametrize("missing", SHARED)
def test_a_store_or_broker_of_its_own_is_refused(missing: str) -> None:
    with pytest.raises(InvalidSetting, match="functions"):
        read_settings({name: value for name, value in SHARED.items() if name != missing})


def test_a_store_that_cannot_be_opened_is_a_problem_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "later"
    host = FunctionHost(small_settings(folder))
    (tmp_path / "later").write_text("in the way")
    answer = host.answer("query", routes.QUERY, gateway_event("GET", "/v1/jobs"), None)
    assert answer["statusCode"] in {422, 503}
    (tmp_path / "later").unlink()
    folder.mkdir()
    assert host.answer("query", routes.QUERY, gateway_event("GET", "/v1/jobs"), None)["statusCode"] == 401
    host.close()


def test_what_a_request_published_is_sent_before_it_is_answered(client: FunctionClient, host: FunctionHost) -> None:
    """The process stands still after its answer: a ticket that is sent in the background would wait for ever."""

    async def slow_broker(engine: Any) -> list[int]:
        sent: list[int] = []
        publish = engine.broker.publish

        async def publish_later(tickets: Any) -> None:
            await engine.clock.sleep(timedelta(milliseconds=50))
            await publish(tickets)
            sent.append(len(tickets))

        engine.broker.publish = publish_later
        engine.tickets._shared = True  # noqa: SLF001 - as over a broker that other processes use too
        return sent

    sent = host.run(slow_broker)
    client.add()
    assert sent == [1]


def test_nothing_happens_in_the_background_between_invocations(client: FunctionClient, host: FunctionHost) -> None:
    """A timer that runs out while the process stands still takes a shard for dead that answers."""
    client.add()
    assert host._loop._scheduled == []  # type: ignore[attr-defined]  # noqa: SLF001 - timers show nowhere else


def test_a_shard_that_was_down_is_found_well_by_a_later_invocation(
    client: FunctionClient, host: FunctionHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fall(engine: Any) -> None:
        (shard,) = engine.store.shards()
        for _ in range(2):
            shard.breaker.record(ok=False, reason="no answer")

    host.run(fall)
    assert client.ask("query", "GET", "/v1/jobs")["statusCode"] == 503
    monkeypatch.setattr("penstock.functions.host.LOOK_INTERVAL", 0.0)
    for _ in range(2):
        client.ask("query", "GET", "/v1/jobs")
    assert client.ask("query", "GET", "/v1/jobs")["statusCode"] == 200


def fork_and_report(host: FunctionHost) -> dict[str, str]:
    """What a copy of this process draws by chance: ids, keys and secrets."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writer, json.dumps(host.run(draw)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as told:
        drawn: dict[str, str] = json.loads(told.read())
    return drawn


async def draw(engine: Any) -> dict[str, str]:
    from penstock.model.request_ids import name_request

    preparation = engine.jobs._preparation  # noqa: SLF001 - the database cannot be used by both copies
    return {
        "job": preparation.new_id()[-17:],
        "key": engine.keys.lend("worker", (KeyScope.WORKER,)),
        "request": name_request(()).decode(),
    }


def test_copies_of_a_process_that_are_restored_from_one_snapshot_draw_different_ids(host: FunctionHost) -> None:
    async def open_engine(engine: Any) -> None:
        await engine.keys.create(KeyRequest(name="ops", scopes=(KeyScope.ADMIN,)))

    host.run(open_engine)
    first, second = fork_and_report(host), fork_and_report(host)
    assert [name for name in first if first[name] == second[name]] == []


class CountingHost(FunctionHost):
    """Counts how often its engine was opened."""

    opened = 0

    async def open(self) -> Any:
        self.opened += 1
        return await super().open()


@pytest.mark.parametrize(
    ("environ", "opened"),
    [
        ({}, 0),
        ({"AWS_LAMBDA_FUNCTION_NAME": "add", "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand"}, 1),
        ({"AWS_LAMBDA_FUNCTION_NAME": "add", "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}, 0),
    ],
)
def test_the_engine_is_opened_while_lambda_starts_the_process_unless_that_is_kept_as_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], opened: int
) -> None:
    from penstock.functions import handlers

    host = CountingHost(small_settings(tmp_path))
    monkeypatch.setattr(handlers, "process_host", lambda: host)
    handlers.prepare(environ)
    assert host.opened == opened
    host.close()


def test_the_entry_points_of_the_template_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.functions import handlers

    names = ("add", "query", "cancel", "rest", "sweep", "publish")
    assert all(callable(getattr(handlers, name)) for name in names)
    for name, value in {**SHARED, "PENSTOCK_STORE_URL": "dynamodb-of-old://x"}.items():
        monkeypatch.setenv(name, value)
    handlers.process_host.cache_clear()
    answer = handlers.query(gateway_event("GET", "/v1/jobs"), None)
    handlers.process_host().close()
    handlers.process_host.cache_clear()
    assert answer["statusCode"] in {422, 503}
    assert StoreUnavailable.code in answer["body"] or "invalid_setting" in answer["body"]
