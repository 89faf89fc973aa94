"""How many tickets each queue may get."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler import plan

QUEUES = st.sampled_from(["a", "b", "c"])
COUNTS = st.dictionaries(QUEUES, st.integers(0, 50_000))


@given(backlog=st.sets(QUEUES), paused=st.sets(QUEUES), depths=COUNTS, window=st.integers(1, 50_000))
def test_room_never_overfills_a_window_nor_serves_a_paused_queue(
    backlog: set[str], paused: set[str], depths: dict[str, int], window: int
) -> None:
    room = plan.room(backlog, frozenset(paused), depths, window)
    assert set(room) <= backlog - paused
    for queue, jobs in room.items():
        assert 0 < jobs <= plan.PASS_JOBS
        assert depths.get(queue, 0) + jobs <= window
