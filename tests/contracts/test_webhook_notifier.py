"""Webhooks keep the contract of notifiers, and the promises of HTTP: bytes, headers, deadlines, kept connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from email.utils import format_datetime

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from msgspec.structs import replace
from standardwebhooks import Webhook

from penstock.events import AddressRules, Delivered, Gone, Rejected, Unreachable, WebhookNotifier
from penstock.events.webhook import DeliveryDeadlines, retry_after
from penstock.model.clock import SystemClock
from penstock.model.subscriptions import Subscription, SubscriptionSink, WebhookSink, rotate
from penstock.testing.clock import START
from penstock.testing.notifier_contract import NotifierContract, NotifierStage, told_event
from penstock.webhooks import ReceivedEvent, Receiver
from tests.webhook_events import new_secret, subscription
from tests.webhook_sink import LocalSink, hang, hang_in_the_body, hang_up, local_sink, reply, talk_nonsense

SHORT = DeliveryDeadlines(answer=timedelta(seconds=3))
HERE = AddressRules(loopback=True)


class WebhookStage:
    """A notifier, and a sink on loopback."""

    def __init__(self, sink: LocalSink, exits: AsyncExitStack) -> None:
        self.sink = sink
        self.exits = exits
        self.url = sink.url
        self.notifier = WebhookNotifier(HERE, "penstock", SystemClock(), deadlines=SHORT)
        self.subscribed = subscription(self.url)

    def subscription(self, *, batch: int = 1) -> Subscription:
        return replace(self.subscribed, batch=batch)

    def received(self) -> list[tuple[str, list[ReceivedEvent]]]:
        receiver = Receiver(self.subscribed.secrets[0].text)
        return [(one.headers["webhook-id"], receiver.read(one.headers, one.body)) for one in self.sink.requests]

    def refuse(self, text: str, retry_after: int | None = None) -> None:
        asked = {} if retry_after is None else {"retry_after": str(retry_after)}
        self.sink.answers.append(reply(503, text.encode(), **asked))

    def vanish(self) -> None:
        self.sink.answers.append(reply(410))

    def hang(self) -> None:
        self.sink.answers.append(hang)

    async def wait_until_asked(self) -> None:
        await self.sink.asked.wait()

    async def stop(self) -> None:
        await self.exits.aclose()

    def wrong_sinks(self) -> Sequence[SubscriptionSink]:
        return [WebhookSink("http://10.0.0.1/"), WebhookSink("ftp://127.0.0.1/"), WebhookSink("https://")]


@pytest.fixture
async def stage() -> AsyncIterator[WebhookStage]:
    async with AsyncExitStack() as exits:
        stage = WebhookStage(await exits.enter_async_context(local_sink()), exits)
        yield stage
        await stage.notifier.close()


class TestWebhookNotifier(NotifierContract):
    @pytest.fixture
    def stage(self, stage: WebhookStage) -> NotifierStage:
        return stage


async def test_a_post_names_itself_its_content_and_its_host(stage: WebhookStage) -> None:
    await stage.notifier.deliver(stage.subscription(), [told_event()])
    await stage.notifier.deliver(stage.subscription(batch=2), [told_event()])
    single, batch = stage.sink.requests
    assert single.line == "POST /hook?to=me HTTP/1.1"
    assert single.headers["host"] == f"127.0.0.1:{stage.sink.port}"
    assert single.headers["user-agent"].startswith("Penstock/")
    assert single.headers["content-type"] == "application/cloudevents+json"
    assert batch.headers["content-type"] == "application/cloudevents-batch+json"
    assert single.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("batch", [1, 3])
async def test_other_libraries_verify_and_parse_what_arrives_under_both_secrets_of_a_rotation(
    stage: WebhookStage, batch: int
) -> None:
    (old,) = stage.subscribed.signing_secrets(START)
    rotated = rotate(stage.subscription(batch=batch), new := new_secret(), SystemClock().now())
    sent = [told_event() for _ in range(batch)]
    await stage.notifier.deliver(rotated, sent)
    (request,) = stage.sink.requests
    for secret in (old, new):
        body = Webhook(secret).verify(request.body, request.headers)
        texts = [json.dumps(one).encode() for one in (body if batch > 1 else [body])]
        read = [from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, text)) for text in texts]
        assert [one.get_id() for one in read] == [one.event.id for one in sent]


async def test_a_connection_is_kept_for_the_next_delivery(stage: WebhookStage) -> None:
    for _ in range(5):
        await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert stage.sink.connections == 1


async def test_a_kept_connection_that_the_sink_closes_in_between_costs_no_attempt(stage: WebhookStage) -> None:
    stage.sink.answers += [reply(200), hang_up, reply(200)]
    outcomes = [await stage.notifier.deliver(stage.subscription(), [told_event()]) for _ in range(2)]
    assert [type(one) for one in outcomes] == [Delivered, Delivered]
    assert [one.connection for one in stage.sink.requests] == [1, 1, 2]


async def test_a_sink_that_hangs_up_on_a_new_connection_is_not_asked_twice(stage: WebhookStage) -> None:
    stage.sink.answers += [hang_up]
    assert isinstance(await stage.notifier.deliver(stage.subscription(), [told_event()]), Unreachable)
    assert len(stage.sink.requests) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_success(stage: WebhookStage, status: int) -> None:
    stage.sink.answers.append(reply(status))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Delivered)
    assert delivery.status == status


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 408, 429, 500, 503])
async def test_everything_else_is_not(stage: WebhookStage, status: int) -> None:
    stage.sink.answers.append(reply(status))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Rejected)
    assert delivery.status == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_that_says_where_it_leads(stage: WebhookStage, status: int) -> None:
    stage.sink.answers.append(reply(status, location=stage.url))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Rejected)
    assert stage.url in delivery.detail
    assert len(stage.sink.requests) == 1


async def test_410_is_gone_with_what_the_sink_says(stage: WebhookStage) -> None:
    stage.sink.answers.append(reply(410, b"moved out"))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Gone)
    assert delivery.detail == "moved out"


async def test_an_answer_that_stops_in_the_middle_is_none(stage: WebhookStage) -> None:
    stage.sink.answers.append(hang_in_the_body)
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Unreachable)
    assert "no whole answer within 3 s" in delivery.detail
    assert delivery.took < timedelta(seconds=10)


async def test_closing_does_not_wait_for_a_sink_that_hangs(stage: WebhookStage) -> None:
    patient = WebhookNotifier(HERE, "penstock", SystemClock())
    stage.hang()
    hanging = asyncio.create_task(patient.deliver(stage.subscription(), [told_event()]))
    await stage.wait_until_asked()
    await patient.close()
    delivery = await hanging
    assert isinstance(delivery, Unreachable)
    assert delivery.took < timedelta(seconds=10)


async def test_an_answer_that_is_no_http_is_none(stage: WebhookStage) -> None:
    stage.sink.answers.append(talk_nonsense)
    assert isinstance(await stage.notifier.deliver(stage.subscription(), [told_event()]), Unreachable)


async def test_a_kilobyte_of_the_answer_is_kept_as_text(stage: WebhookStage) -> None:
    stage.sink.answers.append(reply(500, b"\xff\x00" + b"x" * 5000))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Rejected)
    assert len(delivery.detail) == 1024
    assert delivery.detail.startswith("\ufffd")


@pytest.mark.parametrize(
    ("text", "pause"),
    [
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("0", timedelta(0)),
        (" 120 ", timedelta(minutes=2)),
        ("9" * 400, timedelta(days=1)),
        (format_datetime(START + timedelta(hours=1), usegmt=True), timedelta(hours=1)),
        ("Tue, 01 Jan 2030 00:01:00 -0000", timedelta(minutes=1)),
        (format_datetime(START - timedelta(hours=1), usegmt=True), timedelta(0)),
        (format_datetime(START + timedelta(days=9), usegmt=True), timedelta(days=1)),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
    ],
)
def test_a_retry_after_is_read_in_seconds_and_as_a_date(text: str, pause: timedelta | None) -> None:
    assert retry_after(text, START) == pause
