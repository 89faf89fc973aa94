"""The scaling policy: what it decides for fleets as people have them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock.autoscaler import Memory, decide
from penstock.model.errors import Invalid
from penstock.model.fleet_readings import DueCount, FleetReading, Unknown
from penstock.model.fleets import Depth, Fleet, KeepWarm, Step, Wait
from penstock.model.wire.fleets import FleetDecision

MONDAY = datetime(2030, 1, 7, 12, tzinfo=UTC)
FLEET = Fleet(max=20, target_wait="10s")


def reading(after: float = 0.0, **seen: object) -> FleetReading:
    """A look, some seconds after noon, at a fleet of which everything is known and nothing goes on."""
    quiet = {"backlog": 0, "running": 0, "due_soon": (), "starting": 0, "idle": 0, "busy": 0, "draining": 0}
    usual = {"service_seconds": 1.0, "startup_seconds": 2.0, "capacity": 1, "arrival_rate": 0.0}
    told = {**quiet, **usual, **seen, "at": MONDAY + timedelta(seconds=after)}
    return msgspec.convert(told, FleetReading, from_attributes=True)


def decided(fleet: Fleet, *looks: FleetReading) -> FleetDecision:
    """The last of several decisions in a row."""
    memory = Memory()
    decision = None
    for look in looks:
        decision, memory = decide(fleet, look, memory)
    assert decision is not None
    return decision


# How many


def test_nothing_to_do_needs_nobody() -> None:
    assert decided(FLEET, reading()).desired == 0


def test_one_job_however_long_needs_one_worker() -> None:
    assert decided(FLEET, reading(backlog=1, service_seconds=3600.0)).start == 1


def test_many_tiny_jobs_need_one_worker() -> None:
    assert decided(FLEET, reading(backlog=500, service_seconds=0.01)).start == 1


def test_long_jobs_need_a_worker_each() -> None:
    assert decided(FLEET, reading(backlog=12, service_seconds=3600.0)).start == 12


def test_a_burst_is_shared_so_that_it_starts_within_the_target() -> None:
    # Nine tenths of 10 s, less 2 s to start up, leave each worker 7 s: eight jobs of a second begin in that time.
    assert decided(FLEET, reading(backlog=80)).start == 10


def test_capacity_counts_like_as_many_workers() -> None:
    assert decided(FLEET, reading(backlog=80, capacity=4)).start == 3


def test_the_fleets_own_capacity_goes_before_the_one_observed() -> None:
    assert decided(Fleet(max=20, target_wait="10s", capacity=4), reading(backlog=80, capacity=1)).start == 3


def test_workers_that_are_starting_are_not_started_again() -> None:
    assert decided(FLEET, reading(backlog=80, starting=10)).start == 0


def test_workers_at_work_count_for_what_they_will_begin() -> None:
    assert decided(FLEET, reading(backlog=40, busy=5, running=5)).start == 0


def test_no_more_than_max_are_started() -> None:
    assert decided(FLEET, reading(backlog=10_000, busy=15, running=15)).start == 5


def test_while_nobody_knows_how_long_a_job_takes_the_fleet_doubles() -> None:
    unknown: dict[str, Any] = {"backlog": 1000, "service_seconds": Unknown()}
    assert decided(FLEET, reading(**unknown)).start == 1
    assert decided(FLEET, reading(**unknown, starting=1)).start == 0
    assert decided(FLEET, reading(**unknown, busy=4, running=4)).start == 4


def test_a_load_that_lasts_counts_beside_the_backlog() -> None:
    tight = Fleet(max=50, target_wait="3s")
    looks = [reading(second, backlog=20, busy=10, running=10, arrival_rate=20.0) for second in range(600)]
    assert decided(tight, reading(backlog=20, busy=10, running=10)).start == 0
    assert decided(tight, *looks).start > 0


# In


def idle_for(fleet: Fleet, seconds: float, **seen: object) -> FleetDecision:
    busy = reading(0, busy=5, running=5)
    return decided(fleet, busy, *(reading(1 + second, **{"idle": 5, **seen}) for second in range(int(seconds))))


def test_idle_workers_are_kept_about_as_long_as_they_take_to_start() -> None:
    assert idle_for(FLEET, 20, startup_seconds=20.0).stop == 0
    assert idle_for(FLEET, 21, startup_seconds=20.0).stop == 5


def test_the_last_worker_is_kept_a_little_longer() -> None:
    assert decided(FLEET, reading(busy=3, running=3), reading(9, idle=3)).stop == 2
    assert decided(FLEET, reading(busy=3, running=3), reading(11, idle=3)).stop == 3


def test_in_after_says_how_long_idle_workers_are_kept() -> None:
    patient = Fleet(max=20, target_wait="10s", in_after="60s")
    assert idle_for(patient, 59).stop == 0
    assert idle_for(patient, 62).stop == 5


def test_a_busy_worker_is_never_stopped() -> None:
    assert idle_for(FLEET, 60, idle=1, busy=4, running=0).stop == 1


def test_a_stop_that_was_regretted_makes_the_next_one_later() -> None:
    _, memory = decide(FLEET, reading(busy=3, running=3), Memory(keep_part=0.2))
    decision, memory = decide(FLEET, reading(2, idle=3), memory)
    decision, memory = decide(FLEET, reading(4, idle=3), memory)
    assert decision.stop
    stopped = memory.keep_part
    _, memory = decide(FLEET, reading(5, backlog=50, idle=1), memory)
    assert memory.keep_part > stopped


def test_idle_workers_stay_while_jobs_due_later_cannot_be_counted() -> None:
    assert idle_for(FLEET, 60, due_soon=Unknown()).stop == 0


def test_a_queue_that_is_drained_between_looks_keeps_its_worker() -> None:
    served = [reading(second, idle=1, arrival_rate=3.0, service_seconds=0.2) for second in range(60)]
    assert decided(FLEET, *served).stop == 0
    assert decided(FLEET, *served, reading(71, idle=1)).stop == 1


# Out


def test_out_after_waits_until_the_need_has_lasted() -> None:
    slow = Fleet(max=20, target_wait="10s", out_after="5s")
    assert decided(slow, reading(backlog=80)).start == 0
    assert decided(slow, reading(backlog=80), reading(5, backlog=80)).start == 10
    assert decided(slow, reading(backlog=80), reading(3), reading(5, backlog=80)).start == 0


# Due soon


def test_jobs_due_soon_have_a_worker_up_when_they_are_due() -> None:
    assert decided(FLEET, reading(due_soon=(DueCount(2.5, 1),))).start == 1


def test_jobs_due_later_have_no_worker_yet() -> None:
    assert decided(FLEET, reading(due_soon=(DueCount(60.0, 100),))).start == 0


def test_an_idle_worker_stays_for_a_job_that_will_be_due_before_another_were_up() -> None:
    assert decided(FLEET, reading(busy=1, running=1), reading(60, idle=1, due_soon=(DueCount(2.0, 1),))).stop == 0


# Warm


def test_workers_are_kept_warm_in_their_hours() -> None:
    warm = Fleet(max=5, keep_warm=(KeepWarm(workers=2, days=("mon",), start="13:00", end="14:00"),))
    assert decided(warm, reading(0)).desired == 0
    assert decided(warm, reading(3599)).desired == 2
    assert decided(warm, reading(3600 + 1800)).desired == 2
    assert decided(warm, reading(7200)).desired == 0
    assert decided(warm, reading(86_400 + 3600)).desired == 0


def test_warm_hours_may_go_past_midnight_in_their_own_zone() -> None:
    night = KeepWarm(days=("fri",), start="22:00", end="06:00", timezone="America/New_York")
    assert night.covers(datetime(2030, 1, 12, 4, tzinfo=UTC))
    assert night.covers(datetime(2030, 1, 12, 10, 59, tzinfo=UTC))
    assert not night.covers(datetime(2030, 1, 12, 11, tzinfo=UTC))
    assert not night.covers(datetime(2030, 1, 11, 4, tzinfo=UTC))


# Depth


DEPTH = Fleet(max=20, policy=Depth(steps=(Step(10, 2), Step(100, 8)), cooldown="30s", empty_for="20s"))


@pytest.mark.parametrize(("backlog", "start"), [(0, 0), (11, 2), (100, 2), (101, 8)])
def test_depth_goes_out_by_the_highest_step_it_is_above(backlog: int, start: int) -> None:
    assert decided(DEPTH, reading(backlog=backlog, busy=1, running=1)).start == start


def test_depth_below_every_step_still_gets_its_first_worker() -> None:
    assert decided(DEPTH, reading(backlog=1)).start == 1
    assert decided(DEPTH, reading(due_soon=(DueCount(1.0, 1),))).start == 1


def test_depth_cools_down_between_steps() -> None:
    first = reading(backlog=50, busy=1, running=1)
    assert decided(DEPTH, first, reading(29, backlog=50, busy=3, running=3)).start == 0
    assert decided(DEPTH, first, reading(30, backlog=50, busy=3, running=3)).start == 2


def test_depth_goes_in_when_it_was_empty_for_a_while() -> None:
    assert decided(DEPTH, reading(idle=3), reading(19, idle=3)).stop == 0
    assert decided(DEPTH, reading(idle=3, busy=1, running=1), reading(20, idle=3, busy=1, running=1)).stop == 3


# Unknown


def test_an_unknown_backlog_holds() -> None:
    decision = decided(FLEET, reading(backlog=Unknown("shard 1 is down"), idle=3))
    assert (decision.desired, decision.start, decision.stop) == (3, 0, 0)
    assert "shard 1 is down" in decision.reason


def test_after_a_while_without_sight_the_fallback_is_started() -> None:
    careful = Fleet(max=20, fallback=4, blind_for="30s")
    blind: dict[str, Any] = {"backlog": Unknown(), "idle": 1}
    assert decided(careful, reading(**blind), reading(29, **blind)).start == 0
    assert decided(careful, reading(**blind), reading(30, **blind)).start == 3
    assert decided(careful, reading(**blind), reading(10, idle=1), reading(30, **blind)).start == 0


def test_without_sight_of_the_workers_none_are_started() -> None:
    careful = Fleet(max=20, min=2, fallback=4, blind_for="30s")
    blind: dict[str, Any] = {"busy": Unknown(), "backlog": 50}
    decision = decided(careful, reading(busy=7, running=7), reading(1, **blind), reading(60, **blind))
    assert (decision.desired, decision.start, decision.stop) == (7, 0, 0)


# Words and values


def test_every_decision_says_why() -> None:
    assert decided(FLEET, reading(backlog=80)).reason == "start 10: 80 due or soon to be (1 s each), 0 running"
    assert decided(FLEET, reading()).reason == "hold 0: 0 running, none due"


def test_a_fleet_survives_the_wire() -> None:
    declared = Fleet(min=1, max=9, target_wait=timedelta(minutes=1), keep_warm=(KeepWarm(),), queues=("mail",))
    assert msgspec.json.decode(msgspec.json.encode(declared), type=Fleet) == declared
    assert msgspec.json.decode(msgspec.json.encode(DEPTH), type=Fleet) == DEPTH
    assert b'"target_wait_seconds":60.0' in msgspec.json.encode(declared)


def test_a_memory_survives_the_wire() -> None:
    _, memory = decide(FLEET, reading(backlog=80), Memory())
    assert msgspec.json.decode(msgspec.json.encode(memory), type=Memory) == memory


def test_unknown_survives_the_wire_and_is_not_zero() -> None:
    seen = reading(backlog=Unknown("no answer"))
    back = msgspec.json.decode(msgspec.json.encode(seen), type=FleetReading)
    assert back.backlog == Unknown("no answer")


def test_spans_may_be_written_as_text_seconds_or_timedelta() -> None:
    assert Fleet(target_wait="1m30s") == Fleet(target_wait=90) == Fleet(target_wait=timedelta(seconds=90))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"target_wait": "soon"}, "not a span of time"),
        ({"target_wait": -1}, "out of range"),
        ({"target_wait": "0s"}, "never be met"),
        ({"target_wait": "5s", "policy": Wait()}, "not both"),
        ({"min": 11}, "above max"),
        ({"min": -1}, "at least 0"),
        ({"fallback": 11}, "above max"),
        ({"keep_warm": (KeepWarm(workers=11),)}, "above max"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_with_what_to_do(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        Fleet(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [(), (Step(5, 1), Step(5, 2)), (Step(5, 3), Step(9, 1))])
def test_depth_steps_must_grow(steps: tuple[Step, ...]) -> None:
    with pytest.raises(Invalid, match="step"):
        Depth(steps=steps)


@pytest.mark.parametrize("wrong", [{"days": ("someday",)}, {"days": ()}, {"start": "8am"}, {"timezone": "Mars"}])
def test_warm_hours_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="keep_warm"):
        KeepWarm(**wrong)  # type: ignore[arg-type]
