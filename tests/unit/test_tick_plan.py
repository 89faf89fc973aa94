"""What becomes of a schedule's ticks, policy by policy."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from penstock.model import ticks
from penstock.model.ids import JobId
from penstock.model.schedule import Cron, Decision, Due, Every, Misfire, Overlap, Schedule
from penstock.model.ticks import jittered
from penstock.scheduler.tick_plan import NOT_ENDED, VERDICTS_MAX, WAITING, plan, wake_at

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
JOB = (JobId("the job before"),)


def at(hour: float) -> datetime:
    return MIDNIGHT + HOUR * hour


def hourly(**changes: object) -> Schedule:
    """A schedule that ticks every hour and waits for midnight's tick."""
    schedule = Schedule(
        name="hourly",
        when=Every(HOUR),
        type="report",
        next_tick_at=MIDNIGHT,
        created_at=at(-1),
        updated_at=at(-1),
    )
    return replace(schedule, **changes)


def from_completion(**changes: object) -> Schedule:
    return hourly(when=Every(HOUR, after_completion=True), **changes)


def decided(schedule: Schedule, now: datetime, active: tuple[JobId, ...] = ()) -> Decision:
    decision = plan(Due(schedule, active), now)
    assert decision is not None
    return decision


def verdicts(decision: Decision) -> list[tuple[int, str | None]]:
    """The verdicts, each tick as an hour."""
    return [((one.at - MIDNIGHT) // HOUR, one.skipped) for one in decision.verdicts]


def test_a_tick_on_time_becomes_a_job_and_the_next_follows_from_it() -> None:
    decision = decided(hourly(), at(0.01))
    assert verdicts(decision) == [(0, None)]
    assert (decision.expected_tick_at, decision.next_tick_at) == (at(0), at(1))
    assert (decision.name, decision.version, decision.cancel) == ("hourly", 1, ())


def test_nothing_is_decided_before_the_tick_nor_while_paused_nor_after_the_end() -> None:
    assert plan(Due(hourly()), at(0) - timedelta(milliseconds=1)) is None
    assert plan(Due(hourly(paused=True)), at(5)) is None
    assert plan(Due(hourly(next_tick_at=None)), at(5)) is None
    assert wake_at(Due(hourly(paused=True))) is wake_at(Due(hourly(next_tick_at=None))) is None


def test_the_last_tick_before_the_end_is_followed_by_none() -> None:
    assert decided(hourly(end_at=at(1)), at(0)).next_tick_at == at(1)
    assert decided(hourly(end_at=at(0.99)), at(0)).next_tick_at is None


def test_a_tick_that_a_new_end_has_cut_off_gets_nothing() -> None:
    decision = decided(hourly(end_at=at(-0.5)), at(0))
    assert (decision.verdicts, decision.next_tick_at) == ((), None)


# -- misfire


def test_a_tick_within_the_grace_is_not_missed() -> None:
    schedule = hourly(misfire=Misfire.SKIP)
    assert verdicts(decided(schedule, at(0) + MINUTE)) == [(0, None)]
    late = decided(schedule, at(0) + MINUTE + timedelta(milliseconds=1))
    assert verdicts(late) == [(0, "missed by 60 s, beyond the grace of 60 s")]


def test_skip_leaves_out_what_was_missed_and_runs_what_was_not() -> None:
    decision = decided(hourly(misfire=Misfire.SKIP), at(3))
    words = [f"missed by {late}, beyond the grace of 60 s" for late in ("3 h", "2 h", "60 min")]
    assert verdicts(decision) == [*enumerate(words), (3, None)]
    assert decision.next_tick_at == at(4)


def test_run_once_runs_the_latest_of_those_missed() -> None:
    decision = decided(hourly(misfire=Misfire.RUN_ONCE), at(9.5))
    words = "coalesced into 2026-01-01T09:00:00+00:00"
    assert verdicts(decision) == [*((hour, words) for hour in range(9)), (9, None)]


def test_run_all_runs_the_newest_up_to_the_cap() -> None:
    capped = decided(hourly(misfire=Misfire.RUN_ALL, misfire_cap=4), at(9.5))
    assert verdicts(capped) == [*((hour, "over the cap of 4") for hour in range(6)), *((h, None) for h in range(6, 10))]
    assert verdicts(decided(hourly(misfire=Misfire.RUN_ALL, misfire_cap=7), at(4.5))) == [(h, None) for h in range(5)]


def run_down(schedule: Schedule, now: datetime) -> list[Decision]:
    """All decisions at one time, each applied before the next."""
    found = list[Decision]()
    while decision := plan(Due(schedule), now):
        found.append(decision)
        schedule = replace(schedule, next_tick_at=decision.next_tick_at, pending_tick_at=decision.pending_tick_at)
    return found


@pytest.mark.parametrize(
    ("misfire", "cap", "runs"),
    [(Misfire.SKIP, 5, 0), (Misfire.RUN_ONCE, 5, 1), (Misfire.RUN_ALL, 700, 700), (Misfire.RUN_ALL, 10_000, 2501)],
)
def test_a_long_outage_is_decided_a_thousand_at_a_time_to_the_same_end(misfire: Misfire, cap: int, runs: int) -> None:
    decisions = run_down(hourly(misfire=misfire, misfire_cap=cap), at(2500.5))
    assert [len(decision.verdicts) for decision in decisions] == [VERDICTS_MAX, VERDICTS_MAX, 501]
    every = [one for decision in decisions for one in verdicts(decision)]
    assert [hour for hour, _ in every] == list(range(2501))
    assert [hour for hour, skipped in every if skipped is None] == list(range(2501 - runs, 2501))


def test_a_store_that_takes_few_verdicts_at_once_gets_them_in_more_decisions() -> None:
    schedule, now = hourly(misfire=Misfire.RUN_ALL, misfire_cap=100), at(9.5)
    decisions = []
    while decision := plan(Due(schedule), now, 4):
        decisions.append(decision)
        schedule = replace(schedule, next_tick_at=decision.next_tick_at)
    assert [len(decision.verdicts) for decision in decisions] == [4, 4, 2]
    assert [one for decision in decisions for one in verdicts(decision)] == [(hour, None) for hour in range(10)]


# -- overlap


def test_allow_does_not_look_at_other_jobs() -> None:
    assert verdicts(decided(hourly(misfire_grace=3 * HOUR), at(2), JOB)) == [(0, None), (1, None), (2, None)]


def test_skip_waits_for_nobody() -> None:
    schedule = hourly(overlap=Overlap.SKIP, misfire_grace=3 * HOUR)
    assert verdicts(decided(schedule, at(1), JOB)) == [(0, NOT_ENDED), (1, NOT_ENDED)]
    assert verdicts(decided(schedule, at(1))) == [(0, None), (1, NOT_ENDED)]


def test_queue_one_keeps_one_tick_waiting_and_leaves_out_the_others() -> None:
    schedule = hourly(overlap=Overlap.QUEUE_ONE, misfire_grace=3 * HOUR)
    decision = decided(schedule, at(2), JOB)
    assert verdicts(decision) == [(1, WAITING), (2, WAITING)]
    assert (decision.pending_tick_at, decision.next_tick_at) == (at(0), at(3))
    waiting = replace(schedule, pending_tick_at=at(0), next_tick_at=at(3))
    assert plan(Due(waiting, JOB), at(2.5)) is None
    assert wake_at(Due(waiting, JOB)) == at(3)


def test_the_waiting_tick_gets_its_job_once_the_one_before_has_ended() -> None:
    waiting = hourly(overlap=Overlap.QUEUE_ONE, pending_tick_at=at(0), next_tick_at=at(3), end_at=at(3))
    assert wake_at(Due(waiting)) == at(0)
    decision = decided(waiting, at(2.5))
    assert verdicts(decision) == [(0, None)]
    assert (decision.expected_pending_at, decision.pending_tick_at, decision.next_tick_at) == (at(0), None, at(3))
    both = decided(waiting, at(3))
    assert verdicts(both) == [(0, None)]
    assert (both.pending_tick_at, both.next_tick_at) == (at(3), None)


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.CANCEL_PREVIOUS])
def test_a_tick_left_waiting_by_an_older_policy_is_decided_by_the_new_one(overlap: Overlap) -> None:
    decision = decided(hourly(overlap=overlap, pending_tick_at=at(-2), next_tick_at=at(3)), at(2), JOB)
    assert verdicts(decision) == [(-2, NOT_ENDED if overlap is Overlap.SKIP else None)]
    assert (decision.pending_tick_at, decision.next_tick_at) == (None, at(3))


def test_cancel_previous_gives_the_job_now_and_names_those_to_cancel() -> None:
    decision = decided(hourly(overlap=Overlap.CANCEL_PREVIOUS, misfire_grace=3 * HOUR), at(1), JOB)
    assert verdicts(decision) == [(0, "replaced by the tick at 2026-01-01T01:00:00+00:00"), (1, None)]
    assert decision.cancel == JOB


def test_what_misfire_lets_run_is_still_judged_by_overlap() -> None:
    decision = decided(hourly(misfire=Misfire.RUN_ALL, overlap=Overlap.SKIP), at(1.5))
    assert verdicts(decision) == [(0, None), (1, NOT_ENDED)]
    waits = decided(hourly(overlap=Overlap.QUEUE_ONE), at(1.5), JOB)
    assert verdicts(waits) == [(0, "coalesced into 2026-01-01T01:00:00+00:00")]
    assert waits.pending_tick_at == at(1)


# -- jitter


def test_a_tick_is_due_at_its_jittered_instant_and_recorded_under_its_own_time() -> None:
    schedule = hourly(jitter=HOUR / 2)
    due_at = jittered(at(0), "hourly", HOUR / 2)
    assert at(0) < due_at == wake_at(Due(schedule))
    assert plan(Due(schedule), due_at - timedelta(milliseconds=1)) is None
    assert verdicts(decided(schedule, due_at)) == [(0, None)]


def test_jitter_alone_never_makes_a_tick_missed() -> None:
    schedule = hourly(when=Every(MINUTE), jitter=HOUR, misfire=Misfire.SKIP, misfire_grace=timedelta(0))
    for _ in range(200):
        due_at = wake_at(Due(schedule))
        assert due_at is not None
        decision = decided(schedule, max(due_at, schedule.updated_at))
        assert all(one.skipped is None for one in decision.verdicts)
        schedule = replace(schedule, next_tick_at=decision.next_tick_at, updated_at=max(due_at, schedule.updated_at))


# -- counting from completions


def test_the_first_tick_is_counted_from_the_making_and_stored_before_it_is_decided() -> None:
    made = from_completion(next_tick_at=None)
    decision = decided(made, at(0))
    assert (decision.verdicts, decision.next_tick_at) == ((), at(-1))
    later = decided(from_completion(next_tick_at=None, start_at=at(5)), at(0))
    assert later.next_tick_at == at(5)


def test_while_its_job_runs_the_next_tick_is_not_known() -> None:
    decision = decided(from_completion(), at(0))
    assert (verdicts(decision), decision.next_tick_at) == ([(0, None)], None)
    running = Due(from_completion(next_tick_at=None, last_tick_at=at(0)), JOB)
    assert (plan(running, at(99)), wake_at(running)) == (None, None)


def test_the_span_is_counted_from_the_completion() -> None:
    ended = Due(from_completion(next_tick_at=None, last_tick_at=at(0)), (), at(4.5))
    assert wake_at(ended) == at(4.5)
    decision = plan(ended, at(4.6))
    assert decision is not None
    assert (decision.expected_tick_at, decision.next_tick_at, decision.verdicts) == (None, at(5.5), ())


def test_it_ends_when_the_completion_comes_too_late_for_another() -> None:
    ended = Due(from_completion(next_tick_at=None, last_tick_at=at(0), end_at=at(5)), (), at(4.5))
    assert (plan(ended, at(9)), wake_at(ended)) == (None, None)


def test_a_tick_whose_job_is_gone_does_not_stall_the_schedule() -> None:
    gone = from_completion(next_tick_at=None, last_tick_at=at(0))
    assert decided(gone, at(0.5)).next_tick_at == at(1)


def test_a_skipped_tick_is_followed_without_a_completion() -> None:
    decision = decided(from_completion(misfire=Misfire.SKIP), at(2.5))
    assert [hour for hour, skipped in verdicts(decision) if skipped] == [0, 1, 2]
    assert decision.next_tick_at == at(3)
    on_time = decided(from_completion(misfire=Misfire.SKIP), at(2))
    assert verdicts(on_time)[-1] == (2, None)
    assert on_time.next_tick_at is None


@pytest.mark.parametrize("misfire", [Misfire.RUN_ONCE, Misfire.RUN_ALL])
def test_a_missed_tick_that_runs_is_the_only_one(misfire: Misfire) -> None:
    decision = decided(from_completion(misfire=misfire), at(50.5))
    assert (verdicts(decision), decision.next_tick_at) == ([(0, None)], None)


def test_a_tick_counted_again_by_a_late_scheduler_is_dropped() -> None:
    again = from_completion(next_tick_at=at(1), last_tick_at=at(1))
    decision = decided(again, at(1.5))
    assert (decision.verdicts, decision.next_tick_at) == ((), None)


# -- the zone database


def test_a_changed_zone_database_recomputes_only_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    daily = hourly(when=Cron("0 2 * * *", "Europe/Berlin"), next_tick_at=at(1))
    assert decided(daily, at(1)).next_tick_at == at(25)
    monkeypatch.setattr(ticks, "zone", lambda _: ZoneInfo("Asia/Tokyo"))
    decision = decided(daily, at(1))
    assert [one.at for one in decision.verdicts] == [at(1)]
    assert decision.next_tick_at == at(17)
