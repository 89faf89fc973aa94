"""Subscriptions: what a filter fits, what is refused and how, and which secrets sign."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock.model.errors import Conflict, Invalid
from penstock.model.lifecycle import State
from penstock.model.subscriptions import (
    DeliveryLimits,
    EventFilter,
    SnsSink,
    Subscription,
    SubscriptionState,
    WebhookSink,
    check_terms,
    check_topic,
    disable,
    event_filter,
    pause,
    resume,
    rotate,
    sink_of,
)
from penstock.testing.clock import START
from tests.webhook_events import new_secret, subscription

HOUR = timedelta(hours=1)


def test_a_filter_without_lists_fits_everything() -> None:
    assert EventFilter().fits_move("report", "bulk", State.RUNNING)
    assert EventFilter().fits_tags(())


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (event_filter(types=["report"]), True),
        (event_filter(types=["mail", "report"], queues=["bulk"], states=["failed", "running"]), True),
        (event_filter(types=["mail"]), False),
        (event_filter(types=["report"], queues=["other"]), False),
        (event_filter(states=["succeeded"]), False),
    ],
)
def test_a_move_fits_if_it_fits_every_list(wanted: EventFilter, fits: bool) -> None:
    assert wanted.fits_move("report", "bulk", State.RUNNING) is fits


def test_a_job_needs_one_of_the_tags() -> None:
    wanted = event_filter(tags=["a", "b"])
    assert wanted.fits_tags(("x", "b"))
    assert not wanted.fits_tags(("x",))
    assert not wanted.fits_tags(())


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"states": ["succeded"]}, r"states: there is no state 'succeded'; did you mean succeeded\?"),
        ({"states": ["?"]}, "states: .* there are: cancelled, expired, failed, queued"),
        ({"states": []}, "states: the list is empty"),
        ({"types": []}, "types: the list is empty"),
        ({"queues": []}, "queues: the list is empty"),
        ({"tags": []}, "tags: the list is empty"),
        ({"types": ["a b"]}, "types: 'a b' is not a name"),
        ({"types": ["report\n"]}, "types: .* is not a name"),
        ({"queues": ["q" * 129]}, "queues: .* is not a name"),
        ({"tags": [str(n) for n in range(101)]}, "tags: 101 are too many; name at most 100"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused_by_field(lists: dict[str, list[str]], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        event_filter(**lists)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch: 0 is out of range; give 1 to 100"),
        ({"batch": 101}, "batch: 101"),
        ({"limits": DeliveryLimits(in_flight=0)}, "limits.in_flight: 0"),
        ({"limits": DeliveryLimits(per_second=0)}, "limits.per_second: 0 is out of range"),
        ({"limits": DeliveryLimits(per_second=float("nan"))}, "limits.per_second: nan"),
        ({"name": "a/b"}, "name: 'a/b' cannot name"),
    ],
)
def test_terms_out_of_range_are_refused_by_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        check_terms(subscription(**changes))


def test_usual_terms_are_good() -> None:
    check_terms(subscription())
    assert subscription().limits.in_flight == 8


def test_a_subscription_is_read_as_it_was_written() -> None:
    one = rotate(subscription(filter=event_filter(states=["failed"])), new_secret(), START + HOUR)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Subscription) == one


def test_both_secrets_sign_for_a_day_after_a_rotation() -> None:
    before = subscription()
    (old,) = before.signing_secrets(START)
    after = rotate(before, new := new_secret(), START + HOUR)
    assert after.signing_secrets(START + HOUR) == [new, old]
    assert after.signing_secrets(START + 24.9 * HOUR) == [new, old]
    assert after.signing_secrets(START + 25 * HOUR) == [new]


def test_a_second_rotation_leaves_two_secrets() -> None:
    once = rotate(subscription(), second := new_secret(), START)
    twice = rotate(once, third := new_secret(), START + HOUR)
    assert twice.signing_secrets(START + HOUR) == [third, second]


def test_a_text_that_is_no_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(Invalid) as raised:
        rotate(subscription(), "whsec_hunter2", START)
    assert "hunter2" not in raised.value.message


def test_the_text_of_a_subscription_holds_no_secret() -> None:
    one = subscription()
    (secret,) = one.signing_secrets(START)
    assert secret not in f"{one} {one!r}"


def test_pausing_disabling_and_resuming() -> None:
    one = subscription()
    assert pause(one, START + HOUR, "maintenance").state is SubscriptionState.PAUSED
    gone = disable(one, START + HOUR, "410 Gone")
    assert (gone.state, gone.reason, gone.changed_at) == (SubscriptionState.DISABLED, "410 Gone", START + HOUR)
    with pytest.raises(Conflict, match=r"orders is disabled .*410 Gone.*resume"):
        pause(gone, START + HOUR)
    again = resume(gone, START + 2 * HOUR)
    assert (again.state, again.reason) == (SubscriptionState.ACTIVE, None)


TOPIC = "arn:aws:sns:us-east-1:123456789012:orders"


@pytest.mark.parametrize(
    "topic",
    [
        TOPIC,
        f"{TOPIC}.fifo",
        "arn:aws-cn:sns:cn-north-1:123456789012:o",
        "arn:aws-us-gov:sns:us-gov-west-1:123456789012:O_1-a",
    ],
)
def test_the_arn_of_a_topic_is_an_address(topic: str) -> None:
    check_topic(topic)
    sink = sink_of(topic)
    assert isinstance(sink, SnsSink)
    assert (sink.address, sink.is_fifo) == (topic, topic.endswith(".fifo"))


@pytest.mark.parametrize(
    "topic",
    [
        "orders",
        "https://sns.us-east-1.amazonaws.com",
        "arn:aws:sqs:us-east-1:123456789012:orders",
        "arn:aws:sns:us-east-1:123456789012:",
        "arn:aws:sns:us-east-1:123456789012:orders\n",
        "arn:aws:sns:us-east-1:123456789012:orders:2f4b-subscription",
        "arn:aws:sns:us-east-1:1234:orders",
        "arn:aws:sns::123456789012:orders",
        "arn:aws:sns:us-east-1:123456789012:" + "x" * 257,
    ],
)
def test_nothing_else_is_a_topic(topic: str) -> None:
    with pytest.raises(Invalid, match="not an SNS topic"):
        check_topic(topic)


def test_anything_but_an_arn_is_a_webhook() -> None:
    assert sink_of("https://example.com/arn:aws:sns") == WebhookSink("https://example.com/arn:aws:sns")


def test_ten_events_go_to_a_topic_at_once_even_without_a_batch() -> None:
    assert [subscription(batch=batch).events_at_once for batch in (1, 50)] == [1, 50]
    assert [subscription(sink=SnsSink(TOPIC), batch=batch).events_at_once for batch in (1, 50)] == [10, 50]


def test_a_topic_has_no_secret_to_rotate() -> None:
    with pytest.raises(Conflict, match="SNS signs"):
        rotate(subscription(sink=SnsSink(TOPIC)), new_secret(), START)


def test_subscriptions_of_both_kinds_are_kept_as_they_are() -> None:
    for one in (subscription(), subscription(sink=SnsSink(TOPIC))):
        assert msgspec.json.decode(msgspec.json.encode(one), type=Subscription) == one
