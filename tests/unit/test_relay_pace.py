"""A sink gets no more load than its subscription says, however many relays there are."""

import asyncio
from datetime import timedelta

from penstock.events.pace import RequestPace, share_limits
from penstock.model.subscriptions import DeliveryLimits
from penstock.testing.clock import SimulatedClock


async def test_messages_are_spaced_evenly() -> None:
    clock = SimulatedClock()
    pace = RequestPace(clock)
    await pace.wait_turn(4)
    for _ in range(3):
        turn = asyncio.ensure_future(pace.wait_turn(4))
        await clock.wait_for_sleepers()
        clock.advance(timedelta(milliseconds=249))
        assert not turn.done()
        clock.advance(timedelta(milliseconds=1))
        await turn


async def test_time_that_was_not_used_is_not_made_up_for() -> None:
    clock = SimulatedClock()
    pace = RequestPace(clock)
    await pace.wait_turn(1)
    clock.advance(timedelta(minutes=1))
    await pace.wait_turn(1)
    third = asyncio.ensure_future(pace.wait_turn(1))
    await asyncio.wait({third, asyncio.ensure_future(clock.wait_for_sleepers())}, return_when=asyncio.FIRST_COMPLETED)
    assert not third.done()
    clock.advance(timedelta(seconds=1))
    await third


async def test_without_a_limit_no_message_waits() -> None:
    clock = SimulatedClock()
    pace = RequestPace(clock)
    for _ in range(3):
        await pace.wait_turn(None)
    assert clock.sleepers == 0


def test_relays_share_the_limits_and_each_may_send_one_message() -> None:
    assert share_limits(DeliveryLimits(in_flight=8, per_second=9), 3) == DeliveryLimits(in_flight=2, per_second=3)
    assert share_limits(DeliveryLimits(in_flight=2), 3) == DeliveryLimits(in_flight=1)
