"""SNS keeps the contract of notifiers, and judges each event of a call by itself."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from urllib.parse import parse_qs

import msgspec
import pytest
from msgspec.structs import replace

from penstock.events import Delivered, Gone, OutgoingEvent, Rejected, Unreachable
from penstock.events.notifier import PartlyDelivered
from penstock.events.sns import MOST_BYTES, SnsNotifier, outcome_of
from penstock.model.clock import SystemClock
from penstock.model.errors import Invalid, Unavailable
from penstock.model.events import event_id
from penstock.model.subscriptions import SnsSink, Subscription, SubscriptionSink, WebhookSink
from penstock.model.wire.jobs import JobItem
from penstock.testing.notifier_contract import NotifierContract, NotifierStage, told_event
from penstock.webhooks import ReceivedEvent, read_events
from tests.emulators import ministack, moto
from tests.sns_topic import EmulatedTopic, entries_answer, reach_through, refusal
from tests.webhook_events import subscription
from tests.webhook_sink import LocalSink, hang, local_sink

SHORT = timedelta(seconds=2)


class SnsStage:
    """A notifier, and a topic of an emulator with a queue that subscribes to it."""

    def __init__(self, sink: LocalSink, exits: AsyncExitStack, topic: EmulatedTopic) -> None:
        self.sink = sink
        self.exits = exits
        self.topic = topic
        self.notifier = SnsNotifier("penstock", SystemClock(), deadline=SHORT)

    def subscription(self, *, batch: int = 1) -> Subscription:
        return subscription(sink=SnsSink(self.topic.arn), batch=batch)

    def received(self) -> list[tuple[str, list[ReceivedEvent]]]:
        bodies = [one["Body"] for one in self.topic.messages()]
        return [(json.loads(body)["id"], read_events(body)) for body in bodies]

    def refuse(self, text: str, retry_after: int | None = None) -> None:
        self.sink.answers.append(refusal("InvalidParameter", text))

    def vanish(self) -> None:
        self.sink.answers.append(refusal("NotFound", "Topic does not exist", 404))

    def hang(self) -> None:
        self.sink.answers.append(hang)

    async def wait_until_asked(self) -> None:
        await self.sink.asked.wait()

    async def stop(self) -> None:
        await self.exits.aclose()

    def wrong_sinks(self) -> Sequence[SubscriptionSink]:
        wrong = (
            "arn:aws:sqs:us-east-1:123456789012:jobs",
            "arn:aws:sns:us-east-1:12345:jobs",
            "arn:aws:sns:us-east-1:123456789012:jobs/../other",
            "arn:aws:sns:us-east-1:123456789012:no-such-topic",
        )
        return [SnsSink(arn) for arn in wrong]

    def calls(self) -> list[dict[str, list[str]]]:
        """The forms of the calls of PublishBatch so far."""
        forms = [parse_qs(one.body.decode()) for one in self.sink.requests]
        return [form for form in forms if form["Action"] == ["PublishBatch"]]


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SnsStage]:
    async with AsyncExitStack() as exits:
        sink = await exits.enter_async_context(local_sink())
        reach_through(monkeypatch, sink, ministack())
        topic = EmulatedTopic(ministack())
        topic.subscribe()
        stage = SnsStage(sink, exits, topic)
        yield stage
        await stage.notifier.close()


class TestSnsNotifier(NotifierContract):
    asks_for_pauses = False

    @pytest.fixture
    def stage(self, stage: SnsStage) -> NotifierStage:
        return stage


def later(sent: OutgoingEvent, version: int) -> OutgoingEvent:
    """A later event of the same job."""
    event = replace(sent.event, version=version, id=event_id(sent.event.job, version))
    return replace(sent, event=event)


def with_params(sent: OutgoingEvent, size: int) -> OutgoingEvent:
    """The event with a job whose params have so many bytes."""
    assert isinstance(sent.job, JobItem)
    return replace(sent, job=replace(sent.job, params=msgspec.Raw(msgspec.json.encode("x" * size))))


async def test_moto_takes_a_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with local_sink() as sink:
        reach_through(monkeypatch, sink, moto())
        topic = EmulatedTopic(moto())
        topic.subscribe()
        notifier = SnsNotifier("penstock", SystemClock())
        sent = [told_event() for _ in range(12)]
        await notifier.check(SnsSink(topic.arn))
        assert isinstance(await notifier.deliver(subscription(sink=SnsSink(topic.arn)), sent), Delivered)
        arrived = {read_events(one["Body"])[0].event.id for one in topic.messages()}
        assert arrived == {one.event.id for one in sent}
        topic.delete()
        assert isinstance(await notifier.deliver(subscription(sink=SnsSink(topic.arn)), sent), Gone)
        await notifier.close()


async def test_subscribers_filter_by_type_queue_state_and_version(stage: SnsStage) -> None:
    narrow = EmulatedTopic(ministack())
    narrow.subscribe({"type": ["mail"], "queue": ["bulk"], "state": ["queued"]})
    mail, report = told_event(), told_event(7)
    other = replace(report, event=replace(report.event, type="report"))
    await stage.notifier.deliver(subscription(sink=SnsSink(narrow.arn)), [mail, other])
    (arrived,) = narrow.messages()
    assert read_events(arrived["Body"])[0].event.id == mail.event.id
    assert arrived["MessageAttributes"]["version"] == {"StringValue": "1", "DataType": "Number"}


async def test_ten_events_go_in_one_call(stage: SnsStage) -> None:
    sent = [told_event() for _ in range(25)]
    assert isinstance(await stage.notifier.deliver(stage.subscription(batch=25), sent), Delivered)
    assert [sum(name.endswith(".Message") for name in form) for form in stage.calls()] == [10, 10, 5]


async def test_a_fifo_topic_keeps_the_order_of_a_job_and_drops_what_comes_twice(stage: SnsStage) -> None:
    topic = EmulatedTopic(ministack(), is_fifo=True)
    topic.subscribe()
    first = told_event(1)
    sent = [first, later(first, 2), later(first, 3)]
    for _ in range(2):
        delivery = await stage.notifier.deliver(subscription(sink=SnsSink(topic.arn)), sent)
        assert isinstance(delivery, Delivered)
    arrived = topic.messages()
    assert [read_events(one["Body"])[0].event.version for one in arrived] == [1, 2, 3]
    assert {one["Attributes"]["MessageGroupId"] for one in arrived} == {first.event.job}


async def test_events_of_one_job_go_one_after_the_other(stage: SnsStage) -> None:
    first, other = told_event(1), told_event(1)
    await stage.notifier.deliver(stage.subscription(batch=10), [first, later(first, 2), other])
    assert [sum(name.endswith(".Message") for name in form) for form in stage.calls()] == [1, 2]


async def test_each_event_of_a_call_is_judged_by_itself(stage: SnsStage) -> None:
    bad, good = told_event(1), told_event(1)
    stage.sink.answers.append(entries_answer([1], {0: "InternalError"}))
    delivery = await stage.notifier.deliver(stage.subscription(batch=10), [bad, good, later(bad, 2), later(good, 2)])
    assert isinstance(delivery, PartlyDelivered)
    assert delivery.delivered == {good.event.id, later(good, 2).event.id}
    assert [(id, type(one), one.detail) for id, one in delivery.failed.items()] == [
        (bad.event.id, Rejected, "InternalError: told")
    ]
    arrived = [one.event.id for _, events in stage.received() for one in events]
    assert arrived == [later(good, 2).event.id]


async def test_a_job_too_large_for_a_message_is_left_out_and_that_is_said(stage: SnsStage) -> None:
    sent, small = told_event(), told_event()
    large = with_params(sent, MOST_BYTES)
    assert isinstance(await stage.notifier.deliver(stage.subscription(batch=2), [large, small]), Delivered)
    data = [json.loads(one["Body"])["data"] for one in stage.topic.messages()]
    assert [(one.get("omitted"), "job" in one) for one in data] == [("too_large", False), (None, True)]
    assert data[0]["event"]["id"] == sent.event.id


async def test_a_call_holds_no_more_than_sns_takes(stage: SnsStage) -> None:
    large = [with_params(told_event(), MOST_BYTES // 2) for _ in range(3)]
    assert isinstance(await stage.notifier.deliver(stage.subscription(batch=3), large), Delivered)
    assert len(stage.calls()) == 3


async def test_a_topic_that_was_deleted_is_gone(stage: SnsStage) -> None:
    stage.topic.delete()
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Gone)
    assert stage.topic.arn in delivery.detail


async def test_a_missing_right_names_the_action(stage: SnsStage) -> None:
    stage.sink.answers.append(refusal("AuthorizationError", "not authorized", 403))
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Unreachable)
    assert "denies sns:Publish: allow this action" in delivery.detail


def test_a_topic_that_throttles_has_answered() -> None:
    assert outcome_of(Unavailable("slower", throttled=True)) == Rejected(429, "slower", timedelta(0))
    assert outcome_of(Unavailable("no answer")) == Unreachable("no answer", timedelta(0))


async def test_a_role_that_may_only_publish_passes_the_check(stage: SnsStage) -> None:
    stage.sink.answers.append(refusal("AuthorizationError", "not authorized", 403))
    await stage.notifier.check(SnsSink(stage.topic.arn))


async def test_a_webhook_is_no_topic(stage: SnsStage) -> None:
    with pytest.raises((Invalid, TypeError)):
        await stage.notifier.check(WebhookSink("https://example.com/"))


async def test_a_process_without_the_library_says_how_to_install_it(
    stage: SnsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.model.extras.find_spec", lambda _: None)
    delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
    assert isinstance(delivery, Unreachable)
    assert "penstock-jobs[aws]" in delivery.detail
