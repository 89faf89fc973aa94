"""Fleets on the command line and through the clients: what is asked of which endpoint, and how answers look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.cli import ROOT
from penstock.model.errors import Invalid
from penstock.model.fleets import Depth, Fleet, Step
from penstock.model.wire.fleets import FleetDecision, FleetItem, FleetList, Look
from tests.unit.test_client_protocol import NOW, Server, answer

LOOK = Look(backlog=7, running=2, starting=1, idle=0, busy=2, draining=0, lost=0)
DECISION = FleetDecision(at=NOW, desired=3, start=1, reason="start 1: 7 due", reading=LOOK)


def fleet(**changes: Any) -> FleetItem:
    known: dict[str, Any] = {
        "name": "thumbnail",
        "source": "job type",
        "fleet": Fleet(max=20, target_wait="5s"),
        "queues": ("thumbnail",),
        "desired": 3,
        "workers": {"starting": 1, "idle": 0, "busy": 2, "draining": 0, "lost": 0},
        "reason": DECISION.reason,
        "latest": DECISION,
        "autoscaler": "here",
        "decisions": (DECISION,),
    }
    return FleetItem(**known | changes)


class RecordingClient:
    """Answers like a server with one fleet, and keeps what it was asked."""

    def __init__(self, item: FleetItem) -> None:
        self.item = item
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **named: Any) -> Any:
            self.asked.append((name, args, named))
            return (self.item,) if name == "fleets" else self.item

        return ask


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RecordingClient:
    recording = RecordingClient(fleet())

    @contextmanager
    def connect(*_: object) -> Iterator[RecordingClient]:
        yield recording

    monkeypatch.setattr("penstock.cli.connection.connect", connect)
    return recording


def run(*words: str) -> Result:
    return CliRunner().invoke(ROOT, ["fleets", *words], catch_exceptions=False)


def test_a_list_shows_workers_bounds_and_why(client: RecordingClient) -> None:
    head, row = run().output.splitlines()
    assert " ".join(head.split()) == "FLEET QUEUES WORKERS IDLE BUSY DESIRED MIN MAX POLICY WHY"
    assert " ".join(row.split()) == "thumbnail thumbnail 3 0 2 3 0 20 wait 5 s start 1: 7 due"


def test_what_nobody_has_seen_is_not_called_zero(client: RecordingClient) -> None:
    client.item = fleet(desired=None, workers={}, reason=None, queues=None, except_queues=("a", "b"))
    row = run("list").output.splitlines()[1]
    assert row.split()[:9] == ["thumbnail", "all", "but", "a,", "b", "?", "?", "?", "?"]
    assert row.endswith("no autoscaler runs this fleet")


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({"paused": True, "count": 4}, "paused"),
        ({"count": 4}, "4 by hand"),
        ({"fleet": Fleet(policy=Depth(steps=(Step(), Step(above=9, add=3))))}, "depth >0: +1, >9: +3"),
    ],
)
def test_who_decides_is_told(client: RecordingClient, changes: dict[str, Any], policy: str) -> None:
    client.item = fleet(**changes)
    assert policy in run().output


def test_what_is_wrong_follows_the_list(client: RecordingClient) -> None:
    client.item = fleet(faults=("queue a is served by fleet b already",), trouble="starting failed once")
    assert run().output.splitlines()[2:] == [
        "fleet thumbnail: queue a is served by fleet b already",
        "fleet thumbnail: starting failed once",
    ]


def test_a_fleet_is_shown_with_its_decisions(client: RecordingClient) -> None:
    output = run("show", "thumbnail").output
    assert client.asked == [("get_fleet", ("thumbnail",), {})]
    assert "workers      1 starting, 2 busy" in output
    assert " ".join(output.splitlines()[-1].split()[2:]) == "3 1 7 2 3 start 1: 7 due"


def test_json_is_what_the_api_says(client: RecordingClient) -> None:
    assert msgspec.json.decode(run("--json").output, type=FleetList) == FleetList((fleet(),))
    for words in (("show", "t"), ("pause", "t"), ("resume", "t"), ("scale", "t", "3"), ("set", "t", "--max", "3")):
        assert msgspec.json.decode(run(*words, "--json").output, type=FleetItem) == fleet()


def test_only_what_is_named_is_changed(client: RecordingClient) -> None:
    result = run("set", "thumbnail", "--max", "40", "--target-wait", "500ms", "--queue", "a", "--queue", "b")
    named = {"max": 40, "target_wait": 0.5, "queues": ("a", "b")}
    assert client.asked == [("update_fleet", ("thumbnail",), named)]
    assert result.output == "fleet thumbnail: 0 to 20 workers, wait 5 s\n"
    client.asked.clear()
    run("set", "thumbnail", "--reset")
    assert client.asked == [("update_fleet", ("thumbnail",), {"reset": True})]


def test_nothing_to_change_is_wrong_usage(client: RecordingClient) -> None:
    result = CliRunner().invoke(ROOT, ["fleets", "set", "thumbnail"])
    assert (result.exit_code, client.asked) == (2, [])
    assert "nothing to change" in result.output


def test_scaling_takes_a_number_or_auto(client: RecordingClient) -> None:
    client.item = fleet(count=3)
    assert "penstock fleets scale thumbnail auto" in run("scale", "thumbnail", "3").output
    client.item = fleet()
    assert "auto" not in run("scale", "thumbnail", "auto").output
    assert [asked[1] for asked in client.asked] == [("thumbnail", 3), ("thumbnail", "auto")]
    assert CliRunner().invoke(ROOT, ["fleets", "scale", "thumbnail", "-1"]).exit_code == 2
    assert CliRunner().invoke(ROOT, ["fleets", "scale", "thumbnail", "many"]).exit_code == 2


def test_several_fleets_may_be_paused_and_resumed_at_once(client: RecordingClient) -> None:
    assert "penstock fleets resume thumbnail" in run("pause", "a", "b").output
    run("resume", "a", "b")
    assert [asked[:2] for asked in client.asked] == [
        ("pause_fleet", ("a",)),
        ("pause_fleet", ("b",)),
        ("resume_fleet", ("a",)),
        ("resume_fleet", ("b",)),
    ]


CALLS: list[tuple[str, object, Callable[[Any], Any]]] = [
    ("GET /v1/fleets", FleetList((fleet(),)), lambda client: client.fleets()),
    ("GET /v1/fleets/a%2Fb", fleet(), lambda client: client.get_fleet("a/b")),
    ("PATCH /v1/fleets/x", fleet(), lambda client: client.update_fleet("x", max=3)),
    ("POST /v1/fleets/x/pause", fleet(), lambda client: client.pause_fleet("x")),
    ("POST /v1/fleets/x/resume", fleet(), lambda client: client.resume_fleet("x")),
    ("POST /v1/fleets/x/scale", fleet(), lambda client: client.scale_fleet("x", "auto")),
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


def test_a_change_says_only_what_is_named_in_seconds() -> None:
    server = Server(answer(fleet()))
    with server.client() as client:
        client.update_fleet("x", max=3, in_after=None)
        client.update_fleet("x", target_wait=timedelta(seconds=2), out_after="500ms", reset=True)
        client.scale_fleet("x", 0)
    assert server.bodies == [
        {"max": 3, "in_after_seconds": None},
        {"target_wait_seconds": 2.0, "out_after_seconds": 0.5, "reset": True},
        {"count": 0},
    ]


def test_the_client_refuses_to_change_nothing() -> None:
    with pytest.raises(Invalid, match="nothing to change"):
        Server(answer(fleet())).client().update_fleet("x")
