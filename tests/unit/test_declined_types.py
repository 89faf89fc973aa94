"""The types that a worker leaves to others."""

from datetime import timedelta

from penstock.testing.clock import SimulatedClock
from penstock.worker.agent.claimer import FIRST_DECLINED_SECONDS, LONGEST_DECLINED_SECONDS, Declined


def test_a_type_that_did_not_fit_is_left_longer_each_time_until_one_fits() -> None:
    clock = SimulatedClock()
    declined = Declined(clock)
    assert (declined.left(), declined.any) == ({}, False)
    spans = []
    for _ in range(9):
        declined.given_back("mail")
        assert declined.any
        spans.append(declined.left()["mail"])
        clock.advance(timedelta(seconds=spans[-1]))
        assert declined.left() == {}
    assert spans[:3] == [FIRST_DECLINED_SECONDS, 2 * FIRST_DECLINED_SECONDS, 4 * FIRST_DECLINED_SECONDS]
    assert spans[-1] == LONGEST_DECLINED_SECONDS
    declined.ran("mail")
    declined.given_back("mail")
    assert declined.left() == {"mail": FIRST_DECLINED_SECONDS}
