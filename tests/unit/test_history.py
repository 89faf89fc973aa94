"""What happened in each step, computed from counted moves."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Invalid
from penstock.model.history import MOST_STEPS, Steps, describe_steps, percentiles, plan_steps
from penstock.model.job import Count
from penstock.model.journal import NEWEST_SPAN, PRUNED, History, HistoryRow
from penstock.model.lifecycle import Move, State

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

MOVES: tuple[tuple[str, State | None, State | None], ...] = (
    (Move.SUBMIT, None, State.QUEUED),
    (Move.SUBMIT, None, State.SCHEDULED),
    (Move.DISPATCH, State.SCHEDULED, State.QUEUED),
    (Move.CLAIM, State.QUEUED, State.RUNNING),
    (Move.SETTLE, State.RUNNING, State.SUCCEEDED),
    (Move.SETTLE, State.RUNNING, State.SCHEDULED),
    (Move.SETTLE, State.RUNNING, State.FAILED),
    (Move.RECLAIM, State.RUNNING, State.QUEUED),
    (Move.CANCEL, State.QUEUED, State.CANCELLED),
    (PRUNED, State.SUCCEEDED, None),
)


Kind = tuple[str, State | None, State | None]


def row(at: datetime, kind: Kind, jobs: int = 1, bucket: int | None = None, type_name: str = "report") -> HistoryRow:
    return HistoryRow(at, NEWEST_SPAN, "q", type_name, *kind, bucket, jobs)


CLAIMED = MOVES[3]


def steps_of_ten_minutes() -> Steps:
    return plan_steps(NOON - 10 * MINUTE, NOON, MINUTE, NOON)


@given(st.lists(st.tuples(st.integers(0, 80), st.sampled_from(MOVES), st.integers(1, 9)), max_size=60))
def test_the_depth_at_the_end_of_each_step_is_that_of_a_replay(moved: list[tuple[int, Kind, int]]) -> None:
    rows = [row(NOON - 10 * MINUTE + number * NEWEST_SPAN, move, jobs=jobs) for number, move, jobs in moved]
    depth = Counter({state: 1000 for state in State})
    at_end: list[tuple[int, int, int]] = []
    for number in range(81):
        for one in (one for one in rows if one.at == NOON - 10 * MINUTE + number * NEWEST_SPAN):
            if one.before:
                depth[one.before] -= one.jobs
            if one.after:
                depth[one.after] += one.jobs
        if number % 6 == 5 and number < 60:
            at_end.append((depth[State.QUEUED], depth[State.RUNNING], depth[State.SCHEDULED]))
    now = [Count("q", "report", state, jobs) for state, jobs in depth.items() if state]
    described = describe_steps([History(rows, now)], steps_of_ten_minutes())
    assert [(one.waiting, one.running, one.scheduled) for one in described] == at_end


def test_each_kind_of_move_is_counted_under_its_name() -> None:
    at = NOON - 5 * MINUTE
    rows = [row(at, move, jobs=number + 1) for number, move in enumerate(MOVES)]
    step = describe_steps([History(rows, [])], steps_of_ten_minutes())[5]
    assert (step.arrived, step.started, step.succeeded, step.errored, step.failed) == (3, 4, 5, 13, 7)
    assert (step.cancelled, step.expired, step.lost) == (9, 0, 8)


def test_a_marked_job_is_not_counted_as_started_or_ended() -> None:
    rows = [row(NOON - MINUTE, (Move.CANCEL, State.RUNNING, State.RUNNING))]
    step = describe_steps([History(rows, [])], steps_of_ten_minutes())[-1]
    assert (step.started, step.cancelled) == (0, 0)


def test_shards_are_added_up_and_other_types_left_out() -> None:
    one = History([row(NOON - MINUTE, MOVES[0], jobs=2)], [Count("q", "report", State.QUEUED, 5)])
    two = History([row(NOON - MINUTE, MOVES[0], jobs=3)], [Count("q", "report!1a", State.QUEUED, 1)])
    other = History([row(NOON - MINUTE, MOVES[0], jobs=9, type_name="other")], [Count("q", "other", State.QUEUED, 9)])
    last = describe_steps([one, two, other], steps_of_ten_minutes(), "report")[-1]
    assert (last.arrived, last.waiting) == (5, 6)


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200))
def test_percentiles_are_within_the_bucket_of_the_exact_value(times: list[int]) -> None:
    found = percentiles(row(NOON, CLAIMED, 1, ms.bit_length()) for ms in times)
    assert found is not None
    ranked = sorted(times)
    for part, told in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        exact = ranked[max(0, -(-int(part * 100) * len(ranked) // 100) - 1)]
        bits = exact.bit_length()
        assert (2 ** (bits - 1) if bits else 0) <= told * 1000 <= 2**bits


def test_no_times_have_no_percentiles() -> None:
    assert percentiles([row(NOON, MOVES[0])]) is None


@given(st.integers(11, 90 * 86_400))
def test_without_a_step_there_are_never_too_many(seconds: int) -> None:
    steps = plan_steps(NOON - timedelta(seconds=seconds), NOON, None, NOON)
    assert 1 <= len(steps.starts) <= MOST_STEPS
    assert steps.since <= NOON - timedelta(seconds=seconds)
    assert steps.until >= NOON


@pytest.mark.parametrize(
    ("since", "step", "named"),
    [
        (NOON, None, "from"),
        (NOON - timedelta(hours=2), timedelta(seconds=10), "step"),
        (NOON - timedelta(hours=1), timedelta(seconds=15), "step"),
        (NOON - timedelta(hours=3), timedelta(seconds=30), "60 s"),
        (NOON - timedelta(days=3), MINUTE, "3600 s"),
    ],
)
def test_steps_that_cannot_be_told_are_refused_by_name(since: datetime, step: timedelta | None, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        plan_steps(since, NOON, step, NOON)
