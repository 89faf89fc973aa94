"""When a file is worth taking past the server."""

from datetime import timedelta

from penstock.client.direct import AGAIN_AFTER, WORTH_BYTES, Direct
from penstock.testing.clock import SimulatedClock


def test_only_a_file_that_saves_more_than_a_call_costs() -> None:
    direct = Direct(SimulatedClock())
    assert direct.worth(WORTH_BYTES)
    assert not direct.worth(WORTH_BYTES - 1)


def test_what_was_of_no_use_is_tried_again_after_a_while() -> None:
    clock = SimulatedClock()
    direct = Direct(clock)
    direct.of_no_use()
    assert not direct.worth(WORTH_BYTES)
    clock.advance(AGAIN_AFTER - timedelta(seconds=1))
    assert not direct.worth(WORTH_BYTES)
    clock.advance(timedelta(seconds=1))
    assert direct.worth(WORTH_BYTES)
