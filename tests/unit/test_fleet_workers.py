"""Fleets: what backend and registry say as one, rates from counts, backing off, and which queues are whose."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.autoscaler.backends import Condition, FleetMember
from penstock.autoscaler.snapshot import JobCounts, Snapshot, Throughput, count_jobs, reading_of, update
from penstock.autoscaler.workers import (
    LONGEST,
    FleetWorkers,
    Knowledge,
    StartBackoff,
    WorkerStatus,
    failed_starts,
    fleet_workers_of,
    longest_idle,
)
from penstock.engine.catalog import CatalogReading as Registry
from penstock.model.errors import Invalid
from penstock.model.fleet_plan import DEFAULT, EffectiveFleet, Overrides, Source, changed, plan
from penstock.model.fleet_readings import DueCount, FleetReading, Unknown
from penstock.model.fleets import Depth, Fleet, KeepWarm
from penstock.model.job import Count
from penstock.model.lifecycle import State
from penstock.model.workers import JobType, Worker, WorkerState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PATIENCE = timedelta(seconds=60)


def member(name: str = "w", condition: Condition = Condition.RUNNING, age: float = 1, **more: Any) -> FleetMember:
    return FleetMember(name=name, condition=condition, started_at=NOW - SECOND * age, **more)


def row(name: str = "w", state: WorkerState = WorkerState.READY, silent: float = 0) -> Worker:
    return Worker(
        id=name,
        host="h",
        pid=1,
        version="1",
        types=(),
        capacity=4,
        state=state,
        started_at=NOW,
        seen_at=NOW - SECOND * silent,
    )


def workers(*members: FleetMember, rows: tuple[Worker, ...] = (), **known: Any) -> FleetWorkers:
    return fleet_workers_of(members, Knowledge(rows={one.id: one for one in rows}, **known), NOW, PATIENCE)


def status(*args: Any, **known: Any) -> WorkerStatus:
    (worker,) = workers(*args, **known).workers
    return worker.status


@pytest.mark.parametrize("condition", [Condition.STARTING, Condition.RUNNING])
def test_a_worker_that_has_not_joined_is_starting(condition: Condition) -> None:
    assert status(member(condition=condition)) is WorkerStatus.STARTING


def test_a_worker_that_has_joined_is_idle_or_busy_by_the_jobs_it_holds() -> None:
    assert status(member(), rows=(row(),)) is WorkerStatus.IDLE
    assert status(member(), rows=(row(),), held={"w": 1}) is WorkerStatus.BUSY
    assert status(member(condition=Condition.STARTING), rows=(row(),)) is WorkerStatus.IDLE


def test_a_worker_drains_that_says_so_itself_or_was_asked_to_or_is_ending() -> None:
    assert status(member(), rows=(row(state=WorkerState.DRAINING),)) is WorkerStatus.DRAINING
    assert status(member(condition=Condition.ENDING), rows=(row(),), held={"w": 1}) is WorkerStatus.DRAINING
    assert status(member(), rows=(row(),), asked={"w"}) is WorkerStatus.DRAINING


def test_a_worker_that_is_silent_is_lost() -> None:
    assert status(member(), rows=(row(state=WorkerState.LOST),), held={"w": 1}) is WorkerStatus.LOST


def test_a_worker_that_holds_jobs_without_being_registered_is_busy() -> None:
    found = workers(member(age=999), held={"w": 1})
    assert (found.workers[0].status, found.late) == (WorkerStatus.BUSY, ())


def test_a_worker_that_was_started_but_is_not_listed_yet_is_starting() -> None:
    found = workers(member("a"), ordered={"a": NOW, "b": NOW})
    assert [(worker.name, worker.status) for worker in found.workers] == [
        ("a", WorkerStatus.STARTING),
        ("b", WorkerStatus.STARTING),
    ]


def test_a_worker_that_has_ended_counts_no_more() -> None:
    ended = member(condition=Condition.ENDED, exit_status=1)
    assert workers(ended, rows=(row(),)) == FleetWorkers(ended=(ended,))


def test_a_registered_worker_that_is_no_member_is_not_of_the_fleet() -> None:
    assert workers(rows=(row("stranger"),)) == FleetWorkers()


def test_a_worker_that_does_not_join_in_time_or_is_silent_for_too_long_is_late() -> None:
    assert workers(member(age=61)).late == ("w",)
    assert workers(member(age=59)).late == ()
    assert workers(member(age=999), rows=(row(state=WorkerState.LOST, silent=61),)).late == ("w",)
    assert workers(member(age=999), rows=(row(state=WorkerState.LOST, silent=59),)).late == ()
    assert workers(member(age=999), rows=(row(),)).late == ()


def test_a_worker_that_had_joined_and_is_not_registered_for_a_moment_is_not_late() -> None:
    assert workers(member(age=999), joined={"w": NOW - SECOND * 59}).late == ()
    assert workers(member(age=999), joined={"w": NOW - SECOND * 61}).late == ("w",)


def test_those_idle_for_longest_are_named_first_and_the_busy_never() -> None:
    found = workers(*map(member, "abcd"), rows=tuple(map(row, "abcd")), held={"d": 1})
    since = {"a": NOW - SECOND, "b": NOW - SECOND * 3, "c": NOW - SECOND * 2}
    assert longest_idle(found, since, 2) == ["b", "c"]
    assert longest_idle(found, since, 9) == ["b", "c", "a"]


# -- what is seen


def snapshot(missing: str = "", *jobs: Count, **more: Any) -> Snapshot:
    registry = Registry({}, {}, {}, more.pop("paused", frozenset()), (), 0.0, NOW)
    known: dict[str, Any] = {"ticks": [], "registry": registry, "rows": {}}
    return Snapshot(at=NOW, counts=jobs, missing=missing, **known | more)


def reading(seen: Snapshot, **fields: Any) -> FleetReading:
    effective = EffectiveFleet(name=DEFAULT, fleet=Fleet(), queues=None, source=Source.DEFAULT, **fields)
    return reading_of(effective, seen, FleetWorkers(), Throughput(), Unknown(), Unknown())


QUEUED = Count("q", "t", State.QUEUED, 3)


def test_while_a_shard_is_missing_what_the_others_hold_is_the_least_and_nothing_else_is_known() -> None:
    found = reading(snapshot("shard 1 is away", QUEUED))
    assert found.backlog == 3
    for gap in (found.running, found.due_soon, found.oldest_wait_seconds):
        assert gap == Unknown("shard 1 is away")
    assert reading(snapshot("shard 1 is away")).backlog == Unknown("shard 1 is away")
    assert reading(snapshot()).backlog == 0


def test_counts_that_a_shard_cut_off_are_the_least_and_say_nothing_of_rates() -> None:
    seen = snapshot("", QUEUED, capped="shard 1 counts at most 3 jobs")
    found = reading(seen)
    assert (found.backlog, found.running) == (3, Unknown("shard 1 counts at most 3 jobs"))
    assert (found.due_soon, found.oldest_wait_seconds) == ((), 0.0)
    assert reading(snapshot(capped="shard 1 counts at most 3 jobs")).backlog == Unknown("shard 1 counts at most 3 jobs")
    effective = EffectiveFleet(name=DEFAULT, fleet=Fleet(), queues=None, source=Source.DEFAULT)
    assert isinstance(count_jobs(effective, seen), Unknown)


def test_only_jobs_of_its_own_queues_count_and_none_of_paused_ones() -> None:
    later = ("later", NOW + SECOND * 9)
    assert reading(snapshot("", QUEUED), except_queues=("q",)).backlog == 0
    assert reading(snapshot("", QUEUED, paused=frozenset({"q"}))).backlog == 0
    assert reading(snapshot(due_later=(later,))).due_soon == (DueCount(9.0, 1),)
    assert reading(snapshot(due_later=(later,)), except_queues=("later",)).due_soon == ()
    assert reading(snapshot(ticks=[later], paused=frozenset({"later"}))).due_soon == ()


def test_workers_count_as_busy_by_their_own_word_where_the_store_cannot_be_seen_whole() -> None:
    said = replace(row("w"), running=2)
    assert snapshot(rows={"w": said}).held == {}
    assert snapshot("shard 1 is away", rows={"w": said}).held == {"w": 2}


# -- throughput


Counted = tuple[datetime, JobCounts | Unknown]


def depths(at: float, queued: int = 0, running: int = 0, ended: int = 0, cancelled: int = 0) -> Counted:
    jobs = {State.QUEUED: queued, State.RUNNING: running, State.SUCCEEDED: ended, State.CANCELLED: cancelled}
    return NOW + SECOND * at, {("q", "t", state): count for state, count in jobs.items()}


def throughput(*counted: Counted) -> Throughput:
    found = Throughput()
    for at, counts in counted:
        found = update(found, at, counts)
    return found


def test_a_first_look_says_nothing_about_rates() -> None:
    found = throughput(depths(0, queued=9, ended=100))
    assert isinstance(found.arrival_rate, Unknown)
    assert isinstance(found.service_seconds, Unknown)


def test_rates_are_differences_between_looks() -> None:
    found = throughput(depths(0, queued=4, running=2), depths(2, queued=6, running=2, ended=4))
    assert found.arrival_rate == 3.0
    assert found.service_seconds == 1.0


def test_counts_that_went_down_say_nothing_and_leave_what_was_known() -> None:
    before = throughput(depths(0, running=1), depths(1, running=1, ended=4))
    found = update(before, *depths(2, running=1, ended=1))
    assert isinstance(found.arrival_rate, Unknown)
    assert found.service_seconds == before.service_seconds == 0.25
    assert update(found, *depths(3, queued=2, running=1, ended=1)).arrival_rate == 2.0


def test_a_look_that_was_not_whole_is_no_difference() -> None:
    found = throughput(depths(0), (NOW, Unknown("shard 1 is away")), depths(2, queued=50))
    assert isinstance(found.arrival_rate, Unknown)
    assert update(found, *depths(3, queued=51)).arrival_rate == 1.0


def test_what_never_ran_says_nothing_about_how_long_jobs_take() -> None:
    found = throughput(depths(0, queued=5), depths(1, cancelled=5))
    assert (found.arrival_rate, isinstance(found.service_seconds, Unknown)) == (0.0, True)


def test_a_rest_does_not_change_how_long_jobs_took() -> None:
    worked = throughput(depths(0, running=1), depths(1, running=1, ended=2))
    rested = update(update(worked, *depths(2, running=0, ended=2)), *depths(9000, ended=2))
    assert isinstance(rested.service_seconds, float)
    assert rested.service_seconds == pytest.approx(1.5 / 2, rel=0.05)


# -- backoff


def test_starts_that_keep_failing_are_tried_ever_more_slowly() -> None:
    found, waits = StartBackoff(), []
    for _ in range(9):
        found = found.failed(NOW, "exit 1")
        assert found.until is not None
        waits.append((found.until - NOW).total_seconds())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert found.allows(5, NOW, any_well=True) == 0
    assert found.allows(5, NOW + LONGEST, any_well=False) == 1
    assert found.allows(5, NOW + LONGEST, any_well=True) == 5
    assert found.rested(NOW + LONGEST) is found
    assert found.rested(NOW + LONGEST * 3) == StartBackoff()
    assert found.describe(NOW) == "starting failed 9 times in a row (exit 1); next try in 60 s"


@pytest.mark.parametrize(
    ("age", "status", "joined", "asked", "failed"),
    [
        (5, 1, False, False, True),
        (5, 0, False, False, True),
        (999, 0, False, False, True),
        (5, 1, True, False, True),
        (5, 0, True, False, False),
        (31, -9, True, False, False),
        (5, 1, False, True, False),
    ],
)
def test_a_start_failed_when_the_worker_ended_unasked_before_it_was_well(
    age: float, status: int, joined: bool, asked: bool, failed: bool
) -> None:
    names = {True: frozenset({"w"}), False: frozenset[str]()}
    ended = [member(condition=Condition.ENDED, age=age, exit_status=status)]
    assert (failed_starts(ended, names[joined], names[asked], NOW) is not None) == failed


# -- which fleet


def planned(*types: JobType, tables: Any = None, **orders: Overrides) -> dict[str, EffectiveFleet]:
    return plan(Fleet(max=3), tables or {}, types, orders)


def of(name: str, queue: str | None = None, fleet: Fleet | None = None) -> JobType:
    return JobType(name=name, queue=queue or name, fleet=fleet)


def test_without_any_declaration_there_is_the_default_fleet_for_everything() -> None:
    (only,) = planned(of("mail")).values()
    assert (only.name, only.fleet.max, only.queues, only.serves("mail")) == (DEFAULT, 3, None, True)


def test_a_fleet_beside_a_job_type_is_named_after_its_queue_and_taken_from_the_default() -> None:
    found = planned(of("thumb", "images", Fleet(max=9)), of("mail"))
    assert found["images"].queues == ("images",)
    assert found[DEFAULT].except_queues == ("images",)
    assert (found[DEFAULT].serves("images"), found[DEFAULT].serves("mail")) == (False, True)


def test_a_fleet_may_serve_several_queues() -> None:
    found = planned(of("thumb", fleet=Fleet(queues=("thumb", "scan"))))
    assert found["thumb"].queues == ("thumb", "scan")
    assert found[DEFAULT].except_queues == ("scan", "thumb")


def test_settings_are_laid_over_what_is_declared_and_orders_over_both() -> None:
    mail = of("mail", fleet=Fleet(max=9, min=1, target_wait="9s"))
    tables = {"mail": {"max": 7, "target_wait_seconds": "2s"}, "scan": {"queues": ["a", "b"]}, DEFAULT: {"min": 2}}
    found = planned(mail, tables=tables, mail=Overrides(changes={"max": 5}, count=4), scan=Overrides(paused=True))
    fleet = found["mail"].fleet
    assert (fleet.min, fleet.max, fleet.target_wait, found["mail"].count) == (1, 5, 2.0, 4)
    assert (found["scan"].queues, found["scan"].paused) == (("a", "b"), True)
    assert (found[DEFAULT].fleet.min, found[DEFAULT].fleet.max) == (2, 3)


def test_a_queue_that_two_want_goes_to_the_first_by_name_and_the_other_is_told() -> None:
    found = planned(of("b", fleet=Fleet(queues=("b", "shared"))), of("a", fleet=Fleet(queues=("a", "shared"))))
    assert (found["a"].queues, found["a"].faults) == (("a", "shared"), ())
    assert (found["b"].queues, found["b"].faults) == (("b",), ("queue shared is served by fleet a already",))


def test_of_two_types_with_one_queue_the_first_by_name_says_what_its_fleet_is_like() -> None:
    found = planned(of("b", "q", Fleet(max=2)), of("a", "q", Fleet(max=1)), of("c", "q", Fleet(max=1)))
    assert found["q"].fleet.max == 1
    assert found["q"].faults == ("job type b declares another fleet for the same queue; that one is passed over",)


def test_a_type_whose_queue_is_called_default_can_have_no_fleet_of_its_own() -> None:
    found = planned(of("mail", DEFAULT, Fleet(max=9)))
    assert (set(found), found[DEFAULT].fleet.max) == ({DEFAULT}, 3)
    assert "mail declares a fleet" in found[DEFAULT].faults[0]


def test_orders_that_do_not_fit_any_more_are_passed_over_and_told() -> None:
    found = planned(of("mail", fleet=Fleet(max=2)), mail=Overrides(changes={"min": 3}))
    assert found["mail"].fleet == Fleet(max=2)
    assert "min (3) is above max (2)" in found["mail"].faults[0]


def test_orders_about_a_fleet_that_is_no_more_are_nothing() -> None:
    assert set(planned(gone=Overrides(count=3))) == {DEFAULT}


def test_a_policy_ends_a_target_and_the_other_way_round() -> None:
    deep = changed(Fleet(target_wait="5s"), {"policy": {"type": "depth"}})
    assert (deep.policy, deep.target_wait) == (Depth(), None)
    assert changed(deep, {"target_wait_seconds": 2}).rule == Fleet(target_wait=2).rule
    with pytest.raises(Invalid, match="not both"):
        changed(Fleet(), {"policy": {"type": "depth"}, "target_wait_seconds": 2})


@pytest.mark.parametrize("said", [{"max": "many"}, {"max": 0}, {"nonsense": 1}, {"target_wait_seconds": "soon"}])
def test_what_cannot_be_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        changed(Fleet(), said)


def test_what_a_job_type_declares_is_bounded_by_the_operator_and_says_so_but_not_what_operators_say() -> None:
    asked = Fleet(min=400, max=9000, fallback=500, keep_warm=(KeepWarm(workers=600),))
    mail = JobType(name="mail", queue="mail", fleet=asked)
    (_, found) = plan(Fleet(max=3), {}, [mail], {}, 100).values()
    bounds = (found.fleet.min, found.fleet.max, found.fleet.fallback, found.fleet.keep_warm[0].workers)
    assert bounds == (100, 100, 100, 100)
    assert found.faults == ("up to 9000 workers are declared; fleet.declared_max allows 100",)
    raised = plan(Fleet(max=3), {"mail": {"max": 2000}}, [mail], {}, 100)["mail"]
    ordered = plan(Fleet(max=3), {}, [mail], {"mail": Overrides(changes={"max": 300})}, 100)["mail"]
    assert (raised.fleet.max, ordered.fleet.max) == (2000, 300)
