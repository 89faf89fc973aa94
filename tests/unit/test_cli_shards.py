"""Shards on the command line and through the clients: what is asked of which endpoint, and how answers look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.cli import ROOT
from penstock.model.lifecycle import State
from penstock.model.shards import ShardState
from penstock.model.wire.shards import ShardItem, ShardList
from tests.unit.test_client_protocol import NOW, Server, answer


def shard(**changes: Any) -> ShardItem:
    known: dict[str, Any] = {
        "number": 2,
        "url": "postgresql://u:***@db2/penstock",
        "weight": 0.5,
        "state": ShardState.ACTIVE,
        "keyed": False,
        "well": True,
        "since": NOW,
        "jobs": {State.QUEUED: 3, State.RUNNING: 4, State.SUCCEEDED: 50},
    }
    return ShardItem(**known | changes)


class RecordingClient:
    """Answers like a server with one shard, and keeps what it was asked."""

    def __init__(self, item: ShardItem) -> None:
        self.item = item
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **named: Any) -> Any:
            self.asked.append((name, args, named))
            return (self.item,) if name == "shards" else self.item

        return ask


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RecordingClient:
    recording = RecordingClient(shard())

    @contextmanager
    def connect(*_: object) -> Iterator[RecordingClient]:
        yield recording

    monkeypatch.setattr("penstock.cli.connection.connect", connect)
    return recording


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(ROOT, ["shards", *words], input=given, catch_exceptions=False)


def test_a_list_shows_how_each_shard_is(client: RecordingClient) -> None:
    client.item = shard(well=False, reason="shard 2 did not answer", jobs=None, keyed=True)
    result = run()
    head, row, reason = result.output.splitlines()
    assert head.split() == ["SHARD", "STATE", "WEIGHT", "KEYED", "HEALTH", "SINCE", "OPEN", "ENDED", "URL"]
    assert row.split()[:5] == ["2", "active", "0.5", "yes", "down"]
    assert row.split()[-3:] == ["?", "?", "postgresql://u:***@db2/penstock"]
    assert reason == "shard 2: shard 2 did not answer"


def test_jobs_are_open_or_ended(client: RecordingClient) -> None:
    assert run("list").output.splitlines()[1].split()[-3:-1] == ["7", "50"]


def test_json_is_what_the_api_says(client: RecordingClient) -> None:
    assert msgspec.json.decode(run("list", "--json").output, type=ShardList) == ShardList((client.item,))


def test_a_url_may_come_from_standard_input(client: RecordingClient) -> None:
    run("add", "-", "--weight", "0.5", given="postgresql://u:geheim@db2/penstock\n")
    named = {"number": None, "weight": 0.5, "keyed": False}
    assert client.asked == [("add_shard", ("postgresql://u:geheim@db2/penstock",), named)]


def test_only_what_is_named_is_changed(client: RecordingClient) -> None:
    assert run("set", "2", "--no-keyed").output == "shard 2 is active, weight 0.5; no keys live there\n"
    assert client.asked == [("update_shard", (2,), {"weight": None, "state": None, "keyed": False})]
    assert "nothing to change" in run("set", "2").output


def test_draining_a_keyed_shard_tells_that_keys_still_come(client: RecordingClient) -> None:
    client.item = shard(state=ShardState.DRAINING, keyed=True)
    assert "penstock shards set 2 --no-keyed" in run("drain", "2").output
    assert client.asked == [("update_shard", (2,), {"state": ShardState.DRAINING})]


def test_removing_says_what_is_left(client: RecordingClient) -> None:
    assert run("remove", "2", "--force").output == "shard 2 is removed; its database is left as it is\n"
    assert client.asked == [("remove_shard", (2,), {"force": True})]


@pytest.mark.parametrize("word", ["add", "set"])
def test_the_help_says_what_a_changed_ring_does_to_keys(word: str) -> None:
    assert "are still found where they are" in " ".join(run(word, "--help").output.split())


CALLS: list[tuple[str, object, Callable[[Any], Any]]] = [
    ("GET /v1/shards", ShardList((shard(),)), lambda client: client.shards()),
    ("POST /v1/shards", shard(), lambda client: client.add_shard("postgresql://db2/penstock", weight=0.5)),
    ("PATCH /v1/shards/2", shard(), lambda client: client.update_shard(2, state="draining")),
    ("DELETE /v1/shards/2?force=true", None, lambda client: client.remove_shard(2, force=True)),
]


@pytest.mark.parametrize(("target", "given", "call"), CALLS, ids=[target for target, _, _ in CALLS])
async def test_both_clients_ask_the_same_endpoint_and_read_the_same_answer(
    target: str, given: object, call: Callable[[Any], Any]
) -> None:
    server, other = Server(answer(given)), Server(answer(given))
    with server.client() as client:
        told = call(client)
    async with other.async_client() as async_client:
        assert await call(async_client) == told
    for request in (*server.requests, *other.requests):
        assert f"{request.method} {request.url.raw_path.decode()}" == target


def test_a_change_says_only_what_is_named() -> None:
    server = Server(answer(shard()))
    with server.client() as client:
        client.update_shard(2, state="draining")
        client.update_shard(2, keyed=False, weight=0)
    assert server.bodies == [{"state": "draining"}, {"keyed": False, "weight": 0}]
