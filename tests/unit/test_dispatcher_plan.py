"""How many tickets each line may get."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.job import BacklogKey
from penstock.scheduler import dispatcher

QUEUES = st.sampled_from(["a", "b", "c"])
LINES = st.builds(BacklogKey, QUEUES, st.sampled_from(["mail", "scan"]))
COUNTS = st.dictionaries(LINES, st.integers(0, 50_000))


@given(backlog=st.sets(LINES), paused=st.sets(QUEUES), depths=COUNTS, window=st.integers(1, 50_000))
def test_room_never_overfills_a_window_nor_serves_a_paused_queue(
    backlog: set[BacklogKey], paused: set[str], depths: dict[BacklogKey, int], window: int
) -> None:
    room = dispatcher.window_room(backlog, frozenset(paused), depths, window)
    assert set(room) <= {line for line in backlog if line.queue not in paused}
    for line, jobs in room.items():
        assert 0 < jobs <= dispatcher.PASS_JOBS
        assert depths.get(line, 0) + jobs <= window
