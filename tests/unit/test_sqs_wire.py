"""Names of SQS queues and the bodies of messages."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.sqs import wire
from penstock.model.ids import JobId, ShardId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.names import NAME_PATTERN

ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,80}")
names = st.from_regex(NAME_PATTERN, fullmatch=True).map(lambda name: name[:128]) | st.text(min_size=1, max_size=20)
keys = st.builds(BacklogKey, names, names) | names.map(lambda name: BacklogKey(name, name))


def test_a_type_in_its_own_queue_has_the_queue_that_one_expects() -> None:
    assert wire.queue_name("shop", BacklogKey("send-mail", "send-mail")) == "shop-send-mail"
    assert wire.plain_key("shop", "shop-send-mail") == BacklogKey("send-mail", "send-mail")


@pytest.mark.parametrize(
    "key",
    [BacklogKey("bulk", "mail"), BacklogKey("mail.send", "mail.send"), BacklogKey("m" * 90, "m" * 90)],
)
def test_every_other_name_is_readable_and_has_a_digest(key: BacklogKey) -> None:
    name = wire.queue_name("shop", key)
    assert re.fullmatch(r"shop-[m][A-Za-z-]*--[0-9a-f]{16}", name)
    assert wire.plain_key("shop", name) is None


def test_a_type_named_like_a_digest_has_a_queue_of_its_own() -> None:
    other = wire.queue_name("shop", BacklogKey("bulk", "mail"))
    alike = other.removeprefix("shop-")
    assert wire.queue_name("shop", BacklogKey(alike, alike)) != other


@settings(max_examples=40)
@given(st.lists(keys, min_size=2, max_size=10, unique=True))
def test_no_two_backlogs_share_a_queue_and_every_name_is_allowed(keys: list[BacklogKey]) -> None:
    found = [wire.queue_name("shop", key) for key in keys]
    assert len(set(found)) == len(keys)
    assert all(ALLOWED.fullmatch(name) for name in found)


@given(names)
def test_a_name_survives_as_a_tag(name: str) -> None:
    value = wire.encode_tag(name)
    assert re.fullmatch(r"[A-Za-z0-9_:-]+", value)
    assert wire.decode_tag(value) == name


@settings(max_examples=40)
@given(names, names, st.integers(0, 9))
def test_a_ticket_survives_as_a_message(queue: str, type_name: str, priority: int) -> None:
    ticket = Ticket(ShardId(5), JobId("0190a6e2-0000-7005-8000-000000000001"), queue, type_name, priority)
    assert wire.decode_ticket(wire.encode_ticket(ticket)) == ticket
