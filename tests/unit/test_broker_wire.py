"""What Redis scripts give back, read: one unreadable lane costs no other its tickets."""

import random

import pytest

from penstock.broker.redis.wire import depths, tickets
from penstock.model.ids import ShardId, new_job_id, to_packed
from penstock.model.job import Ticket

RNG = random.Random(7)
ONE, OTHER = (Ticket(ShardId(0), new_job_id(1, ShardId(0), RNG), "post", "mail", 5) for _ in range(2))


def lane(*some: Ticket, queue: bytes = b"post", head: bytes | None = None) -> bytes:
    head = b"5 %d 4 %d" % (len(queue), len(some)) if head is None else head
    return head + b"\n" + queue + b"mail" + to_packed(one.job for one in some)


def test_lanes_stand_one_after_the_other() -> None:
    assert tickets(lane(ONE) + lane(OTHER)) == tickets(lane(ONE, OTHER)) == [ONE, OTHER]
    assert tickets(b"") == []


def test_a_lane_whose_name_is_no_text_costs_only_itself() -> None:
    assert tickets(lane(ONE) + lane(OTHER, queue=b"\xff\n9 9") + lane(OTHER)) == [ONE, OTHER]


@pytest.mark.parametrize("head", [b"5 4 4", b"5 4 4 9", b"5 -4 4 1", b"5:post/mail", b"5 4 x 1", b"", b"5 4 4 -9"])
def test_what_follows_a_head_that_cannot_be_read_is_dropped_and_what_precedes_it_kept(head: bytes) -> None:
    assert tickets(lane(ONE) + lane(OTHER, head=head)) == [ONE]


def test_a_line_whose_name_cannot_be_read_keeps_no_other_from_being_counted() -> None:
    words = [b"4:post/mail", b"3", b"post/mail", b"1", b"1:\xff/mail", b"1", b"3:a/b/c/d", b"2"]
    assert depths(words) == {("post", "mail"): 3, ("a/b", "c/d"): 2}
