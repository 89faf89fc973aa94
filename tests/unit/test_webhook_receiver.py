"""The receiver of webhooks: what it accepts, what it refuses, and that another library agrees with our signatures."""

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from penstock.events.cloudevents import OutgoingEvent, encode_batch, encode_event
from penstock.model.clock import SystemClock
from penstock.model.errors import Invalid, PenstockError
from penstock.model.subscriptions import rotate
from penstock.testing.clock import START, SimulatedClock
from penstock.webhooks import (
    BadSignature,
    ReceivedEvent,
    Receiver,
    StaleWebhook,
    UnreadableWebhook,
    WebhookRefused,
    sign,
)
from tests.webhook_events import event, new_secret, outgoing, subscription

SECRET = new_secret()
OTHER = new_secret()
CLOCK = SimulatedClock()
BODY = encode_event(outgoing(), "penstock")


def headers(body: bytes = BODY, secrets: Sequence[str] = (SECRET,), id: str = "msg_1") -> dict[str, str]:
    return sign(secrets, id, START, body)


def receiver(*secrets: str) -> Receiver:
    return Receiver(*(secrets or (SECRET,)), clock=CLOCK)


def test_a_single_event_is_read_with_its_job() -> None:
    sent = outgoing()
    body = encode_event(sent, "penstock")
    (received,) = receiver().read(headers(body), body)
    assert received.event == sent.event
    assert received.job is not None
    assert received.job.id == sent.event.job
    assert received.job.params == {"rows": 500, "title": "Ä €"}


def test_a_batch_is_read_in_order() -> None:
    sent = [outgoing(version) for version in (1, 2, 3)]
    body = encode_batch(sent, "penstock")
    assert [one.event for one in receiver().read(headers(body), body)] == [one.event for one in sent]


def test_an_event_without_its_job_is_read() -> None:
    told = event(before=None, reason="late")
    body = encode_event(OutgoingEvent(told), "penstock")
    assert receiver().read(headers(body), body) == [ReceivedEvent(told, None)]


def test_header_names_may_be_written_in_any_case() -> None:
    assert receiver().read({name.title(): value for name, value in headers().items()}, BODY)


@pytest.mark.parametrize("signing", [(SECRET,), (OTHER,), (OTHER, SECRET)])
def test_any_known_secret_will_do(signing: Sequence[str]) -> None:
    assert receiver(SECRET, OTHER).read(headers(secrets=signing), BODY)


def test_a_receiver_finds_its_signature_among_others() -> None:
    assert receiver(OTHER).read(headers(secrets=[SECRET, OTHER]), BODY)


@pytest.mark.parametrize("absent", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_missing_is_named(absent: str) -> None:
    given = headers()
    del given[absent]
    with pytest.raises(BadSignature, match=f"has no {absent}"):
        receiver().read(given, BODY)


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({}, BODY + b" "),
        ({}, BODY.replace(b"succeeded", b"cancelled")),
        ({"webhook-id": "msg_2"}, BODY),
        ({"webhook-timestamp": str(int(START.timestamp()) + 1)}, BODY),
        ({"webhook-signature": "v1,"}, BODY),
        ({"webhook-signature": "v1"}, BODY),
        ({"webhook-signature": " , v2, ä \udcff"}, BODY),
        ({"webhook-signature": headers(secrets=[OTHER])["webhook-signature"]}, BODY),
        ({"webhook-signature": headers()["webhook-signature"].removeprefix("v1,")}, BODY),
        ({"webhook-signature": headers()["webhook-signature"].replace("v1,", "v1a,")}, BODY),
    ],
)
def test_whatever_is_changed_the_signature_does_not_fit(changed: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadSignature, match="not signed with a known secret"):
        receiver().read(headers() | changed, body)


@pytest.mark.parametrize(
    ("apart", "message"), [(timedelta(seconds=301), "301 s ago, 300 s are allowed"), (-timedelta(hours=1), "future")]
)
def test_a_webhook_signed_too_long_ago_or_in_the_future_is_stale(apart: timedelta, message: str) -> None:
    with pytest.raises(StaleWebhook, match=message):
        Receiver(SECRET, clock=SimulatedClock(START + apart)).read(headers(), BODY)


@pytest.mark.parametrize("apart", [timedelta(minutes=5), -timedelta(minutes=5)])
def test_clocks_may_differ_by_five_minutes(apart: timedelta) -> None:
    assert Receiver(SECRET, clock=SimulatedClock(START + apart)).read(headers(), BODY)


def test_the_tolerance_may_be_another() -> None:
    late = SimulatedClock(START + timedelta(hours=1))
    assert Receiver(SECRET, tolerance=timedelta(hours=2), clock=late).read(headers(), BODY)


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b'{"type": 5}', b"\xff", b"[" * 100_000, b'{"data": {}}'])
def test_a_signed_body_that_is_no_cloud_event_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableWebhook, match="no CloudEvent"):
        receiver().read(headers(body), body)


def test_a_signed_event_of_a_job_without_its_facts_is_unreadable() -> None:
    body = b'{"type": "dev.penstock.job.failed", "data": {"event": {}}}'
    with pytest.raises(UnreadableWebhook, match=r"dev\.penstock\.job\.failed cannot be read"):
        receiver().read(headers(body), body)


def test_a_message_about_no_job_has_no_events() -> None:
    body = b'{"specversion": "1.0", "type": "dev.penstock.test", "data": {"hello": 1}}'
    assert receiver().read(headers(body), body) == []


def test_a_move_of_a_newer_penstock_is_read() -> None:
    told = event(move="teleport")
    body = encode_event(OutgoingEvent(told), "penstock")
    assert receiver().read(headers(body), body)[0].event.move == "teleport"


def test_text_in_place_of_bytes_is_a_mistake_that_is_explained() -> None:
    with pytest.raises(TypeError, match="bytes of the body as they came, not over a str"):
        receiver().read(headers(), BODY.decode())  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_abc", "hunter2", SECRET.removeprefix("whsec_"), f"{SECRET}!"])
def test_a_text_that_is_no_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(Invalid, match="not a signing secret") as raised:
        Receiver(secret)
    assert not secret.removeprefix("whsec_") or secret not in raised.value.message


def test_a_receiver_without_a_secret_is_refused() -> None:
    with pytest.raises(Invalid, match="needs at least one"):
        Receiver()


def test_all_that_a_receiver_raises_is_one_branch_of_the_error_tree() -> None:
    assert {BadSignature, StaleWebhook, UnreadableWebhook} <= set(WebhookRefused.__subclasses__())
    assert issubclass(WebhookRefused, PenstockError)


@pytest.mark.parametrize("batch", [False, True])
def test_another_library_verifies_under_the_old_and_the_new_secret_during_a_rotation(batch: bool) -> None:
    now = SystemClock().now()
    before = subscription()
    (old,) = before.signing_secrets(now)
    rotated = rotate(before, new := new_secret(), now)
    body = encode_batch([outgoing(), outgoing()], "penstock") if batch else BODY
    signed = sign(rotated.signing_secrets(now), "msg_1", now, body)
    for secret in (old, new):
        assert Webhook(secret).verify(body, signed) == json.loads(body)
        assert Receiver(secret).read(signed, body)
    over = sign(rotated.signing_secrets(now + timedelta(days=1)), "msg_1", now, body)
    assert Webhook(new).verify(body, over) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(body, over)


def test_we_verify_what_another_library_signs() -> None:
    now = SystemClock().now()
    signature = Webhook(SECRET).sign("msg_1", now, BODY.decode())
    timestamp = str(int(now.timestamp()))
    given = {"webhook-id": "msg_1", "webhook-timestamp": timestamp, "webhook-signature": signature}
    assert Receiver(SECRET).read(given, BODY)


def test_a_receiver_loads_neither_a_server_nor_an_http_client() -> None:
    code = "import sys, penstock.webhooks; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "penstock.webhooks" in loaded
    assert not loaded & {"httpcore2", "httpx2", "starlette", "apsw", "penstock.engine", "penstock.client"}
