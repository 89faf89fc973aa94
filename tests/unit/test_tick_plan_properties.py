"""The safety of ticks: no tick twice, no tick silent, never early. Whoever plans, whenever, whatever else is running.

Several schedulers read one schedule, plan at times that only grow, and apply when they get to it; some very late.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.ids import JobId
from penstock.model.schedule import Cron, Decision, Due, Every, Misfire, Overlap, Schedule, Verdict
from penstock.model.ticks import jittered
from penstock.scheduler import tick_plan

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
FEW = 7
"""Verdicts of one decision here, so that outages of a few ticks take several decisions."""

SPANS = (7 * SECOND, MINUTE, timedelta(minutes=90))
MINUTES: dict[str, Callable[[datetime], bool]] = {
    "*/7 * * * *": lambda at: at.minute % 7 == 0,
    "15 */3 * * *": lambda at: (at.hour % 3, at.minute) == (0, 15),
}


class Shard:
    """One schedule as a store keeps it: applies a decision only while what it was made from is still there.

    `keyed`: a tick that has a record keeps it, as the primary key of a real store sees to. Fixed rates do without.
    """

    def __init__(self, schedule: Schedule, *, keyed: bool = False) -> None:
        self.schedule = schedule
        self.verdicts: list[Verdict] = []
        self._keyed = keyed

    def apply(self, decision: Decision) -> bool:
        kept = self.schedule
        read = (decision.version, decision.expected_tick_at, decision.expected_pending_at)
        if read != (kept.version, kept.next_tick_at, kept.pending_tick_at):
            return False
        last = [one.at for one in decision.verdicts] + [kept.last_tick_at or BEGIN - MINUTE]
        recorded = {one.at for one in self.verdicts} if self._keyed else set()
        self.verdicts += [one for one in decision.verdicts if one.at not in recorded]
        self.schedule = replace(
            kept, next_tick_at=decision.next_tick_at, pending_tick_at=decision.pending_tick_at, last_tick_at=max(last)
        )
        return True


def schedules(when: st.SearchStrategy[Every | Cron]) -> st.SearchStrategy[Schedule]:
    return st.builds(
        Schedule,
        name=st.sampled_from(["nightly", "hourly"]),
        when=when,
        type=st.just("report"),
        end_at=st.none() | st.integers(0, 300).map(lambda minutes: BEGIN + MINUTE * minutes),
        jitter=st.sampled_from([0, 0, 5, 100, 4000]).map(lambda seconds: SECOND * seconds),
        misfire=st.sampled_from(Misfire),
        misfire_cap=st.sampled_from([1, 3, 10, 500]),
        misfire_grace=st.sampled_from([0, 30, 600, 10**6]).map(lambda seconds: SECOND * seconds),
        overlap=st.sampled_from(Overlap),
        created_at=st.just(BEGIN),
        updated_at=st.just(BEGIN),
    )


FIXED_RATE = schedules(st.sampled_from([*map(Every, SPANS), *map(Cron, MINUTES)]))
FROM_COMPLETION = schedules(st.sampled_from([Every(span, after_completion=True) for span in SPANS]))
ACTIVE = st.sampled_from([(), (), (JobId("before"),), (JobId("before"), JobId("and before that"))])
PASSES = st.lists(
    st.tuples(st.integers(0, 2500), ACTIVE, st.sampled_from(["apply", "apply", "keep", "apply a kept one"])),
    max_size=20,
)
LATE_PASSES = st.lists(st.tuples(st.integers(0, 9000), st.booleans(), st.none() | st.integers(0, 9)), max_size=40)


def ticks_of(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    """The ticks due by now, in order, each second looked at."""
    at = BEGIN
    while at <= now and (schedule.end_at is None or at <= schedule.end_at):
        if is_tick(schedule.when, at):
            if jittered(at, schedule.name, schedule.jitter) > now:
                return
            yield at
        at += SECOND


def is_tick(when: Every | Cron, at: datetime) -> bool:
    if isinstance(when, Cron):
        return at.second == 0 and MINUTES[when.expression](at)
    return int(at.timestamp()) % int(when.span.total_seconds()) == 0


def first_of(schedule: Schedule) -> datetime | None:
    seconds = (BEGIN + SECOND * ahead for ahead in range(4 * 3600))
    first = next(at for at in seconds if is_tick(schedule.when, at))
    return first if schedule.end_at is None or first <= schedule.end_at else None


def settle(shard: Shard, active: tuple[JobId, ...], now: datetime) -> None:
    """Plan and apply until there is nothing to decide."""
    for _ in range(5000):
        decision = tick_plan.plan(Due(shard.schedule, active), now, FEW)
        if decision is None:
            return
        assert len(decision.verdicts) <= FEW
        assert shard.apply(decision)
    raise AssertionError("the decisions never end")


def run(schedule: Schedule, passes: list[tuple[int, tuple[JobId, ...], str]]) -> tuple[Shard, datetime]:
    """Schedulers at work on a schedule: some decide, some fall asleep with a decision in hand, and apply it later."""
    shard, now, kept = Shard(replace(schedule, next_tick_at=first_of(schedule))), BEGIN, list[Decision]()
    for seconds, active, what in passes:
        now += SECOND * seconds
        decision = tick_plan.plan(Due(shard.schedule, active), now, FEW)
        if decision is not None:
            assert all(jittered(one.at, schedule.name, schedule.jitter) <= now for one in decision.verdicts)
            kept.append(decision)
        if what == "apply" and decision is not None:
            assert shard.apply(decision)
        if what == "apply a kept one" and kept:
            shard.apply(kept[len(kept) // 2])
    settle(shard, (JobId("before"),), now)
    return shard, now


@given(schedule=FIXED_RATE, passes=PASSES)
def test_no_tick_twice(schedule: Schedule, passes: list[tuple[int, tuple[JobId, ...], str]]) -> None:
    shard, _ = run(schedule, passes)
    times = [one.at for one in shard.verdicts]
    assert len(set(times)) == len(times)
    assert shard.schedule.pending_tick_at not in times


@given(schedule=FIXED_RATE, passes=PASSES)
def test_no_tick_silent(schedule: Schedule, passes: list[tuple[int, tuple[JobId, ...], str]]) -> None:
    shard, now = run(schedule, passes)
    pending = shard.schedule.pending_tick_at
    told = {one.at for one in shard.verdicts} | ({pending} if pending else set())
    assert told == set(ticks_of(schedule, now))
    assert pending is None or schedule.overlap is Overlap.QUEUE_ONE
    assert all(one.skipped != "" for one in shard.verdicts)


@given(schedule=FIXED_RATE, seconds=st.integers(0, 30_000), active=ACTIVE)
def test_never_early(schedule: Schedule, seconds: int, active: tuple[JobId, ...]) -> None:
    due = Due(replace(schedule, next_tick_at=first_of(schedule)), active)
    now = BEGIN + SECOND * seconds
    decision, wakes_at = tick_plan.plan(due, now), tick_plan.wake_at(due)
    assert (decision is not None) == (wakes_at is not None and wakes_at <= now)
    decided = decision.verdicts if decision else ()
    assert all(jittered(one.at, schedule.name, schedule.jitter) <= now for one in decided)
    assert not (decision and decision.pending_tick_at) or decision.pending_tick_at <= now
    if wakes_at is not None:
        assert tick_plan.plan(due, wakes_at - timedelta(milliseconds=1)) is None
        assert tick_plan.plan(due, wakes_at) is not None


@given(schedule=FIXED_RATE, passes=PASSES)
def test_overlap_is_kept_whatever_was_missed(
    schedule: Schedule, passes: list[tuple[int, tuple[JobId, ...], str]]
) -> None:
    shard, now = Shard(replace(schedule, next_tick_at=first_of(schedule))), BEGIN
    for seconds, active, _ in passes:
        now += SECOND * seconds
        decision = tick_plan.plan(Due(shard.schedule, active), now, FEW)
        if decision is None:
            continue
        shard.apply(decision)
        jobs = sum(one.skipped is None for one in decision.verdicts)
        if schedule.overlap is not Overlap.ALLOW:
            assert jobs <= (0 if active and schedule.overlap is not Overlap.CANCEL_PREVIOUS else 1)
        assert decision.cancel == (active if jobs and schedule.overlap is Overlap.CANCEL_PREVIOUS else ())


@given(schedule=FROM_COMPLETION, passes=LATE_PASSES)
@example(
    schedule=Schedule(
        name="poll", when=Every(MINUTE, after_completion=True), type="poll", created_at=BEGIN, updated_at=BEGIN
    ),
    passes=[(0, False, None), (0, False, None), (0, False, 0), (1, False, None)],
)
def test_after_a_completion_no_tick_twice_and_never_without_a_next(
    schedule: Schedule, passes: list[tuple[int, bool, int | None]]
) -> None:
    assert isinstance(schedule.when, Every)
    # The guard compares next ticks, and "none" comes back: one late decision is seen through, two need the tick's key.
    lates = sum(late is not None for _, _, late in passes)
    shard, now, kept, span = Shard(schedule, keyed=lates > 1), BEGIN, list[Decision](), schedule.when.span
    running, completed_at = tuple[JobId, ...](), None
    for seconds, ends, late in passes:
        now += SECOND * seconds
        if running and ends:
            running, completed_at = (), now
        due = Due(shard.schedule, running, completed_at)
        decision = tick_plan.plan(due, now)
        kept += [decision] if decision else []
        chosen = decision if late is None or not kept else kept[late % len(kept)]
        if chosen and shard.apply(chosen) and any(one.skipped is None for one in chosen.verdicts):
            assert lates or completed_at is None or chosen.verdicts[-1].at >= completed_at + span
            running = (JobId("running"),)
        ended = schedule.end_at is not None and now + span > schedule.end_at
        assert running or ended or tick_plan.wake_at(Due(shard.schedule, running, completed_at)) is not None
    jobs = [one.at for one in shard.verdicts if one.skipped is None]
    assert len(set(jobs)) == len(jobs)
