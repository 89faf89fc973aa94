"""Subscriptions on the command line and through the clients: what is asked of which endpoint, how answers look."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.cli import ROOT
from penstock.cli.format import Printer
from penstock.cli.webhooks import WebhookListener, open_sink
from penstock.client import subscription_calls
from penstock.events.cloudevents import encode_event
from penstock.model.errors import Invalid, InvalidSetting
from penstock.model.events import EventId
from penstock.model.signatures import sign
from penstock.model.subscriptions import (
    DeliveryLimits,
    EventContent,
    EventFilter,
    SnsSink,
    SubscriptionState,
    WebhookSink,
)
from penstock.model.wire.subscriptions import (
    CircuitState,
    DeliveryItem,
    DeliveryPage,
    MadeSubscription,
    RelayItem,
    ReplayAnswer,
    SecretItem,
    SubscriptionItem,
    SubscriptionList,
    SubscriptionReport,
    SubscriptionSource,
    TestOutcome,
)
from penstock.webhooks import Receiver
from tests.unit.test_client_protocol import NOW, Server, answer
from tests.webhook_events import new_secret, outgoing

URL = "https://shop.example/hook"
FIELDS: dict[str, Any] = {
    "name": "orders",
    "state": SubscriptionState.ACTIVE,
    "reason": None,
    "sink": WebhookSink(URL),
    "filter": EventFilter(types=("report",)),
    "include": EventContent.ITEM,
    "batch": 1,
    "limits": DeliveryLimits(),
    "secrets": (SecretItem(created_at=NOW),),
    "source": SubscriptionSource.API,
    "created_at": NOW,
    "changed_at": NOW,
}
ITEM = SubscriptionItem(**FIELDS)
MADE = MadeSubscription(**FIELDS, secret="whsec_made")
RELAY = RelayItem(
    shard=0,  # type: ignore[arg-type]
    circuit=CircuitState.OPEN,
    failures=6,
    retry_at=NOW,
    lag_entries=3,
    lag_seconds=90.0,
    waiting=2,
    dead=1,
    delivered=1234,
    failed=7,
)
REPORT = SubscriptionReport(**FIELDS, relays=(RELAY,))
DELIVERY = DeliveryItem(
    shard=0,  # type: ignore[arg-type]
    at=NOW,
    delivered=False,
    first="evt_1",
    last="evt_1",
    events=1,
    attempt=2,
    status=500,
    detail="no room",
    took_seconds=0.25,
)
OUTCOME = TestOutcome(event=EventId("evt_t"), delivered=True, status=204, detail=None, took_seconds=0.01)


class RecordingSubscriptions:
    """Answers like a server with one subscription, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {
            "create": MADE,
            "rotate": MADE,
            "list": (ITEM,),
            "get": REPORT,
            "test": OUTCOME,
            "deliveries": iter((DELIVERY,)),
            "replay": ReplayAnswer(3),
            "delete": None,
        }

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **named: Any) -> Any:
            self.asked.append((name, args, named))
            return self.answers.get(name, ITEM)

        return ask


class RecordingClient:
    def __init__(self) -> None:
        self.subscriptions = RecordingSubscriptions()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RecordingSubscriptions:
    recording = RecordingClient()

    @contextmanager
    def connect(*_: object) -> Iterator[RecordingClient]:
        yield recording

    monkeypatch.setattr("penstock.cli.connection.connect", connect)
    return recording.subscriptions


def run(*words: str) -> Result:
    return CliRunner().invoke(ROOT, ["subscriptions", *words], catch_exceptions=False)


def test_a_new_secret_is_alone_on_stdout(client: RecordingSubscriptions) -> None:
    result = run("create", "orders", URL, "--type", "report", "--batch", "10", "--per-second", "5")
    assert result.stdout == "whsec_made\n"
    assert "penstock subscriptions test orders" in result.stderr
    assert "shown this once" in result.stderr
    terms = {"secret": None, "types": ("report",), "batch": 10, "per_second": 5.0}
    assert client.asked == [("create", ("orders", URL), terms)]


def test_a_secret_of_ones_own_comes_from_a_variable(
    client: RecordingSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "whsec_mine")
    run("rotate", "orders", "--secret-env", "MINE")
    assert client.asked == [("rotate", ("orders",), {"secret": "whsec_mine"})]
    refused = CliRunner().invoke(ROOT, ["subscriptions", "rotate", "orders", "--secret-env", "NOT_SET"])
    assert (refused.exit_code, "NOT_SET" in refused.output) == (2, True)


def test_a_secret_that_was_shown_before_is_told_how_to_replace(client: RecordingSubscriptions) -> None:
    client.answers["create"] = MadeSubscription(**FIELDS, secret=None)
    result = run("create", "orders", URL)
    assert result.stdout == ""
    assert "penstock subscriptions rotate orders" in result.stderr


TOPIC = "arn:aws:sns:us-east-1:123456789012:orders"


def test_a_topic_has_no_secret_to_print(client: RecordingSubscriptions) -> None:
    client.answers["create"] = MadeSubscription(**FIELDS | {"sink": SnsSink(TOPIC)}, secret=None)
    result = run("create", "orders", TOPIC)
    assert result.stdout == ""
    assert f"orders delivers events of type report to {TOPIC}" in result.stderr
    assert "SNS signs what it sends" in result.stderr


def test_the_clients_ask_for_a_topic_by_its_arn() -> None:
    for address, sink in ((TOPIC, {"kind": "sns", "topic": TOPIC}), (URL, {"kind": "webhook", "url": URL})):
        call = subscription_calls.create("orders", address, {}, None)
        assert isinstance(call.body, bytes)
        assert msgspec.json.decode(call.body)["sink"] == sink


def test_a_list_shows_state_url_and_filter(client: RecordingSubscriptions) -> None:
    removed = msgspec.structs.replace(ITEM, source=SubscriptionSource.REMOVED, state=SubscriptionState.DISABLED)
    client.answers["list"] = (ITEM, removed)
    _, first, second = run().output.splitlines()
    assert " ".join(first.split()) == f"orders active {URL} events of type report"
    assert "disabled" in second
    assert "no longer in penstock.toml" in second


def test_a_subscription_is_shown_with_its_relays(client: RecordingSubscriptions) -> None:
    output = run("show", "orders").output
    assert "1,234" in output
    assert "open after 6 failures" in output
    assert "1m 30s" in output


def test_a_shard_that_gave_no_answer_is_named(client: RecordingSubscriptions) -> None:
    client.answers["get"] = msgspec.structs.replace(REPORT, missing_shards=(2,))
    assert "no answer from shard 2" in run("show", "orders").stderr


def test_json_is_what_the_api_says(client: RecordingSubscriptions) -> None:
    assert msgspec.json.decode(run("--json").output, type=SubscriptionList) == SubscriptionList((ITEM,))
    assert msgspec.json.decode(run("show", "orders", "--json").output, type=SubscriptionReport) == REPORT
    assert msgspec.json.decode(run("create", "orders", URL, "--json").output, type=MadeSubscription) == MADE
    assert msgspec.json.decode(run("test", "orders", "--json").output, type=TestOutcome) == OUTCOME


def test_only_what_is_named_is_changed_and_all_lifts_a_limit(client: RecordingSubscriptions) -> None:
    run("update", "orders", "--to", "https://new.example/", "--state", "failed", "--type", "all")
    changes = {"url": "https://new.example/", "states": ("failed",), "types": None}
    assert client.asked == [("update", ("orders",), changes)]
    assert CliRunner().invoke(ROOT, ["subscriptions", "update", "orders"]).exit_code == 2


def test_a_test_that_was_not_delivered_ends_with_1(client: RecordingSubscriptions) -> None:
    assert run("test", "orders").exit_code == 0
    client.answers["test"] = msgspec.structs.replace(OUTCOME, delivered=False, status=None, detail="refused")
    result = CliRunner().invoke(ROOT, ["subscriptions", "test", "orders"], standalone_mode=False)
    assert result.return_value == 1
    assert "no answer" in result.output
    assert "refused" in result.output


def test_deliveries_are_listed(client: RecordingSubscriptions) -> None:
    line = run("deliveries", "orders").output.splitlines()[1]
    assert " ".join(line.split()[2:]) == "0 failed 500 1 2 250 ms evt_1 no room"


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--dead",), {"dead": True}),
        (("--event", "evt_1"), {"event": "evt_1"}),
        (
            ("--from", "2026-11-15T18:00Z", "--to", "2026-11-15T19:00Z"),
            {"since": datetime(2026, 11, 15, 18, tzinfo=UTC), "until": datetime(2026, 11, 15, 19, tzinfo=UTC)},
        ),
    ],
)
def test_a_replay_names_one_kind(client: RecordingSubscriptions, words: tuple[str, ...], asked: dict[str, Any]) -> None:
    assert "3 events will be delivered again" in run("replay", "orders", *words).output
    nothing = {"event": None, "since": None, "until": None, "dead": False}
    assert client.asked == [("replay", ("orders",), nothing | asked)]


@pytest.mark.parametrize("words", [(), ("--dead", "--event", "x"), ("--to", "2026-11-15T18:00Z")])
def test_a_replay_of_nothing_or_of_two_kinds_is_wrong_usage(
    client: RecordingSubscriptions, words: tuple[str, ...]
) -> None:
    assert CliRunner().invoke(ROOT, ["subscriptions", "replay", "orders", *words]).exit_code == 2
    assert client.asked == []


def test_several_may_be_paused_resumed_and_deleted_at_once(client: RecordingSubscriptions) -> None:
    for word in ("pause", "resume", "delete"):
        run(word, "a", "b")
    assert [(name, args[0]) for name, args, _ in client.asked] == [
        (word, name) for word in ("pause", "resume", "delete") for name in ("a", "b")
    ]


PATH = "/v1/subscriptions"
CALLS: list[tuple[str, object, Callable[[Any], Any]]] = [
    (f"POST {PATH}", MADE, lambda one: one.create("orders", URL, types=["report"])),
    (f"GET {PATH}", SubscriptionList((ITEM,)), lambda one: one.list()),
    (f"GET {PATH}/a%2Fb", REPORT, lambda one: one.get("a/b")),
    (f"PATCH {PATH}/x", ITEM, lambda one: one.update("x", batch=3)),
    (f"POST {PATH}/x/pause", ITEM, lambda one: one.pause("x")),
    (f"POST {PATH}/x/resume", ITEM, lambda one: one.resume("x")),
    (f"POST {PATH}/x/test", OUTCOME, lambda one: one.test("x")),
    (f"POST {PATH}/x/rotate", MADE, lambda one: one.rotate("x")),
    (f"POST {PATH}/x/replay", ReplayAnswer(1), lambda one: one.replay("x", dead=True)),
]


@pytest.mark.parametrize(("target", "given", "call"), CALLS, ids=[target for target, _, _ in CALLS])
async def test_both_clients_ask_the_same_endpoint_and_read_the_same_answer(
    target: str, given: object, call: Callable[[Any], Any]
) -> None:
    server, other = Server(answer(given)), Server(answer(given))
    with server.client() as client:
        told = call(client.subscriptions)
    async with other.async_client() as async_client:
        assert await call(async_client.subscriptions) == told
    for request in (*server.requests, *other.requests):
        assert f"{request.method} {request.url.raw_path.decode()}" == target


def test_a_creation_has_a_key_of_its_own_and_says_only_what_is_named() -> None:
    server = Server(answer(MADE))
    with server.client() as client:
        client.subscriptions.create("orders", URL, types=["report"], in_flight=2, secret="whsec_mine")
        client.subscriptions.create("orders", URL)
    first, second = (request.headers["idempotency-key"] for request in server.requests)
    assert first != second
    assert server.bodies == [
        {
            "name": "orders",
            "sink": {"kind": "webhook", "url": URL},
            "filter": {"types": ["report"]},
            "limits": {"in_flight": 2},
            "secret": "whsec_mine",
        },
        {"name": "orders", "sink": {"kind": "webhook", "url": URL}},
    ]


def test_the_log_is_fetched_page_by_page() -> None:
    server = Server(answer(DeliveryPage((DELIVERY,), NOW)), answer(DeliveryPage((DELIVERY,))))
    with server.client() as client:
        assert len(list(client.subscriptions.deliveries("orders", page_size=1))) == 2
    assert [request.url.params.get("before") for request in server.requests] == [None, NOW.isoformat()]


def test_the_client_refuses_what_can_never_be() -> None:
    with Server(answer(ITEM)).client() as client:
        with pytest.raises(Invalid, match="nothing to change"):
            client.subscriptions.update("x")
        with pytest.raises(Invalid, match=r"\['report'\]"):
            client.subscriptions.update("x", types="report")


class TestListening:
    @pytest.fixture
    def secret(self) -> str:
        return new_secret()

    @pytest.fixture
    def sink(self, secret: str) -> Iterator[WebhookListener]:
        with open_sink(0, Receiver(secret), Printer(as_json=False)) as sink:
            serving = threading.Thread(target=sink.serve_forever, args=(0.01,))
            serving.start()
            yield sink
            sink.shutdown()
            serving.join()

    def post(self, sink: WebhookListener, headers: dict[str, str], body: bytes) -> int:
        connection = HTTPConnection("127.0.0.1", sink.server_port, timeout=5)
        connection.request("POST", "/", body, headers)
        return connection.getresponse().status

    def test_what_is_signed_is_printed(
        self, sink: WebhookListener, secret: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        one = outgoing()
        body = encode_event(one, "here")
        assert self.post(sink, sign([secret], one.event.id, datetime.now(UTC), body), body) == 204
        line = capsys.readouterr().out
        assert line.startswith("verified")
        assert f"{one.event.id}  report running → succeeded" in line

    @pytest.mark.parametrize("age", [timedelta(0), timedelta(hours=1)])
    def test_what_is_not_is_refused(
        self, sink: WebhookListener, secret: str, age: timedelta, capsys: pytest.CaptureFixture[str]
    ) -> None:
        body = encode_event(outgoing(), "here")
        signer = secret if age else new_secret()
        assert self.post(sink, sign([signer], "evt_1", datetime.now(UTC) - age, body), body) == 400
        printed = capsys.readouterr()
        assert (printed.out, "refused" in printed.err) == ("", True)

    def test_a_port_that_is_taken_is_told(self, sink: WebhookListener) -> None:
        with pytest.raises(InvalidSetting, match="choose another"):
            open_sink(sink.server_port, None, Printer(as_json=False))
