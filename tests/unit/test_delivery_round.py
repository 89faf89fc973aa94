"""Which event a relay sends next when its sink begins to fail, and what tells that the sink is down."""

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.events.circuit import OPENS_AFTER, PROBE_PAUSES, Circuit
from penstock.events.delivery_plan import DeliveryRound
from penstock.events.lanes import EventWindow, HeldEvent
from penstock.events.notifier import Delivered, Delivery, PartlyDelivered, Rejected, Unreachable
from penstock.model.events import JobEvent, event_id, pack_event
from penstock.model.ids import JobId
from penstock.model.journal import Parked, Position
from penstock.model.lifecycle import State
from penstock.testing.clock import START

UNREACHABLE = Unreachable("refused", timedelta())
REFUSED = Rejected(500, "", timedelta(), None)
DELIVERED = Delivered(204, timedelta())


def event(number: int) -> JobEvent:
    job = JobId(f"01900000-0000-7000-8000-{number:012}")
    return JobEvent(
        id=event_id(job, 1),
        job=job,
        version=1,
        type="mark",
        queue="mark",
        move="submit",
        before=None,
        after=State.QUEUED,
        attempt=1,
        reason=None,
        at=START,
    )


def failed_before(count: int) -> list[Parked]:
    events = [event(number) for number in range(count)]
    return [Parked(job=one.job, version=1, event=pack_event(one), attempts=1, due_at=START) for one in events]


def new(count: int) -> EventWindow:
    held = [HeldEvent(event(100 + number), Position(1, number)) for number in range(count)]
    return EventWindow(held, Position(2))


def round_of(waiting: Sequence[Parked], window: EventWindow, circuit: Circuit | None = None) -> DeliveryRound:
    return DeliveryRound(window, waiting, circuit or Circuit(), START, random.Random(1))


def send(round: DeliveryRound, outcome: Delivery) -> HeldEvent | None:
    """Send the next event alone, with this outcome."""
    taken = round.take(START, 1, 8)
    if not taken:
        return None
    round.settle(taken, outcome, START)
    return taken[0]


def test_events_that_failed_before_go_first_while_the_sink_is_well() -> None:
    round = round_of(failed_before(2), new(2))
    assert [one.attempts for _ in range(4) if (one := send(round, DELIVERED))] == [1, 1, 0, 0]


@pytest.mark.parametrize("outcome", [UNREACHABLE, REFUSED])
def test_after_a_failure_new_events_tell_whether_the_sink_is_down(outcome: Delivery) -> None:
    round = round_of(failed_before(9), new(9))
    assert (first := send(round, outcome)) is not None
    assert first.attempts == 1
    later = [one.attempts for _ in range(17) if (one := send(round, outcome))]
    assert later == [0] * (OPENS_AFTER - (outcome is UNREACHABLE))
    assert round.circuit.open


def test_a_round_after_a_failure_begins_with_new_events() -> None:
    round = round_of(failed_before(3), new(3), Circuit(failures=2))
    assert [one.attempts for _ in range(9) if (one := send(round, REFUSED))] == [0, 0, 0]
    assert round.circuit.open


@pytest.mark.parametrize(("outcome", "opens"), [(UNREACHABLE, True), (REFUSED, False)])
def test_events_that_fail_again_open_the_circuit_if_the_sink_does_not_answer(outcome: Delivery, *, opens: bool) -> None:
    round = round_of(failed_before(20), new(0))
    sent = [send(round, outcome) for _ in range(20)]
    assert round.circuit.open is opens
    assert len([one for one in sent if one is not None]) == (OPENS_AFTER if opens else 20)


def test_what_was_under_way_at_the_opening_of_the_circuit_does_not_delay_its_probe() -> None:
    round = round_of([], new(20))
    under_way = [round.take(START, 1, 8) for _ in range(8)]
    for taken in under_way:
        round.settle(taken, UNREACHABLE, START)
    assert round.circuit.failures == OPENS_AFTER
    assert round.circuit.until_probe(START) <= 1.2 * PROBE_PAUSES[0]


def test_refused_events_count_once_a_new_one_has_failed() -> None:
    round = round_of(failed_before(20), new(1))
    sent = [one.attempts for _ in range(21) if (one := send(round, REFUSED))]
    assert sent == [1, 0, 1, 1, 1, 1]
    assert round.circuit.open


def test_a_success_between_refusals_says_that_the_sink_is_well() -> None:
    round = round_of(failed_before(20), new(2))
    assert [send(round, outcome) is not None for outcome in (REFUSED, REFUSED, DELIVERED)] == [True] * 3
    assert len([one for _ in range(19) if (one := send(round, REFUSED))]) == 19
    assert not round.circuit.open


def versions_of(number: int, *versions: int) -> EventWindow:
    """Events of one job, and one of another."""
    first = event(number)
    held = [replace(first, version=version, id=event_id(first.job, version)) for version in versions]
    both = [*held, event(number + 1)]
    return EventWindow([HeldEvent(one, Position(1, index)) for index, one in enumerate(both)], Position(2))


def test_what_a_sink_took_of_a_message_is_done_and_only_the_rest_is_tried_again() -> None:
    round = round_of([], versions_of(100, 1, 2, 3))
    taken = round.take(START, 10, 8)
    first, second, third, other = [one.event for one in taken]
    outcome = PartlyDelivered(frozenset({first.id, other.id}), {second.id: REFUSED}, 200, timedelta())
    round.settle(taken, outcome, START)
    assert round.take(START, 10, 8) == []
    write = round.conclude(START)
    assert [(one.job, one.version, one.attempts) for one in write.parked] == [(second.job, 2, 1), (third.job, 3, 0)]
    assert write.parked[0].due_at is not None
    assert write.parked[1].due_at is None
    assert write.state.position == Position(2)
    assert [(one.delivered, one.events) for one in write.log] == [(True, 2), (False, 1)]


def test_a_sink_that_takes_a_part_of_each_message_is_well() -> None:
    round = round_of([], new(20))
    for _ in range(OPENS_AFTER + 2):
        taken = round.take(START, 2, 8)
        good, bad = [one.event.id for one in taken]
        round.settle(taken, PartlyDelivered(frozenset({good}), {bad: UNREACHABLE}, 200, timedelta()), START)
    assert not round.circuit.open
