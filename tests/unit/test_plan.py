"""How many tickets each queue may get."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import TimingSettings
from penstock.scheduler import plan

QUEUES = st.sampled_from(["a", "b", "c"])
COUNTS = st.dictionaries(QUEUES, st.integers(0, 50_000))


@given(backlog=st.sets(QUEUES), paused=st.sets(QUEUES), depths=COUNTS, allowed=COUNTS)
def test_room_never_overfills_a_window_nor_serves_a_paused_queue(
    backlog: set[str], paused: set[str], depths: dict[str, int], allowed: dict[str, int]
) -> None:
    room = plan.room(backlog, frozenset(paused), depths, allowed, least=100)
    assert set(room) <= backlog - paused
    for queue, jobs in room.items():
        assert 0 < jobs <= plan.PASS_JOBS
        assert depths.get(queue, 0) + jobs <= allowed.get(queue, 100)


def test_a_window_holds_some_seconds_of_drain_and_never_less_than_the_least() -> None:
    timing = TimingSettings(window_seconds=10, window_jobs=1000)
    assert plan.windows({"slow": 1.0, "fast": 5000.0}, timing) == {"slow": 1000, "fast": 50_000}


def test_the_drain_rate_is_what_was_held_and_posted_and_is_gone() -> None:
    assert plan.drain_rates({}, {"a": 100}, {"a": 50}, {"a": 30}, 2.0) == {"a": 30.0}
    assert plan.drain_rates({"a": 10.0}, {}, {}, {}, 0.0) == {"a": 10.0}
