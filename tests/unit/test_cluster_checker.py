"""The judge of `make cluster` reports what is wrong: each history here breaks one promise."""

from collections.abc import Sequence
from typing import Any

import pytest

from cluster.checker import Found, Verdict, Wrong, judge
from cluster.placement import NOTICED_SECONDS, Placement, place
from cluster.records import Call, Entry, Event, Mark, Phase
from cluster.recovery import Fault, Harm, Recovery, measure

JOB = "01900000-0000-7001-8000-000000000001"
OTHER = "01900000-0000-7002-8000-000000000002"


def asked(n: int = 1, at: float = 1.0) -> Event:
    return Event(phase=Phase.INVOKE, call=Call.SUBMIT, n=n, at=at)


def told(call: Call = Call.SUBMIT, n: int = 1, at: float = 2.0, **more: Any) -> Event:
    return Event(phase=Phase.OK, call=call, n=n, at=at, **{"job": JOB, **more})


def ran(fence: int = 1, at: float = 3.0, n: int = 1, job: str = JOB, worker: str = "a") -> list[Entry]:
    return [began(fence, at, n, job, worker), note(Mark.END, fence, at + 0.5, n, job, worker)]


def began(fence: int = 1, at: float = 3.0, n: int = 1, job: str = JOB, worker: str = "a") -> Entry:
    return note(Mark.START, fence, at, n, job, worker)


def note(mark: Mark, fence: int, at: float, n: int = 1, job: str = JOB, worker: str = "a") -> Entry:
    return Entry(mark=mark, job=job, n=n, fence=fence, attempt=fence, at=at, pid=11, worker=worker)


def found(
    state: str = "succeeded", fence: int = 1, result: object = 1, n: int = 1, id: str = JOB, **more: Any
) -> Found:
    return Found(id=id, n=n, state=state, fence=fence, result=result, **more)


GOOD = ([asked(), told()], ran(), [found()])


def wrongs(verdict: Verdict) -> set[Wrong]:
    return {finding.wrong for finding in verdict.findings}


def test_nothing_is_said_against_a_job_that_ran_once() -> None:
    assert judge(*GOOD) == Verdict(acknowledged=1, finished_once=1, interrupted=0, findings=())


def test_an_attempt_that_was_cut_off_is_counted_and_is_no_fault() -> None:
    verdict = judge([asked(), told()], [began(1), *ran(2, at=5)], [found(fence=2, result=2)])
    assert (verdict.finished_once, verdict.interrupted, verdict.findings) == (1, 1, ())


def test_an_attempt_that_errored_was_not_interrupted() -> None:
    entries = [began(1), note(Mark.ERROR, 1, 3.1), *ran(2, at=5)]
    assert judge([asked(), told()], entries, [found(fence=2, result=2)]).interrupted == 0


def test_a_submit_of_which_nobody_knows_may_be_there_or_not() -> None:
    unknown = [asked(), Event(phase=Phase.INFO, call=Call.SUBMIT, n=1, at=2)]
    assert judge(unknown, [], []).findings == ()
    assert judge(unknown, ran(), [found()]).findings == ()


def test_an_acknowledged_job_that_is_not_there_is_lost() -> None:
    verdict = judge([asked(), told()], [], [])
    assert wrongs(verdict) == {Wrong.LOST}
    assert (verdict.acknowledged, verdict.finished_once) == (1, 0)


@pytest.mark.parametrize("state", ["scheduled", "queued", "running"])
def test_an_acknowledged_job_that_never_ends_is_lost(state: str) -> None:
    assert wrongs(judge([asked(), told()], [], [found(state, result=None)])) == {Wrong.LOST}


def test_two_jobs_for_one_order_are_doubled() -> None:
    jobs = [found(), found(id=OTHER)]
    assert Wrong.DOUBLED in wrongs(judge([asked(), told()], ran(), jobs))


def test_a_key_that_was_answered_with_two_ids_is_doubled() -> None:
    events = [asked(), told(), asked(at=3), told(at=4, job=OTHER)]
    assert Wrong.DOUBLED in wrongs(judge(events, ran(), [found()]))


def test_a_job_that_ran_for_an_order_but_is_another_is_doubled() -> None:
    verdict = judge([asked(), told()], [*ran(), *ran(fence=0, job=OTHER)], [found()])
    assert [finding.wrong for finding in verdict.findings] == [Wrong.DOUBLED]


def test_a_job_listed_twice_is_doubled() -> None:
    assert wrongs(judge([asked(), told()], ran(), [found(), found()])) == {Wrong.DOUBLED}


def test_an_outcome_that_changed_after_it_was_read_is_doubled() -> None:
    read = told(Call.READ, at=4, state="succeeded", fence=1)
    verdict = judge([asked(), told(), read], [*ran(1), *ran(2, at=5)], [found(fence=2, result=2)])
    assert wrongs(verdict) == {Wrong.DOUBLED}


def test_a_result_of_another_attempt_than_the_settled_one_is_doubled() -> None:
    assert wrongs(judge([asked(), told()], [began(1), *ran(2, at=5)], [found(fence=2, result=1)])) == {Wrong.DOUBLED}


def test_a_success_of_an_attempt_that_no_handler_ended_is_doubled() -> None:
    assert wrongs(judge([asked(), told()], [began(1)], [found()])) == {Wrong.DOUBLED}


def test_an_output_of_another_attempt_is_doubled() -> None:
    jobs = [found(fence=2, result=2, output="1")]
    assert wrongs(judge([asked(), told()], [began(1), *ran(2, at=5)], jobs)) == {Wrong.DOUBLED}


def test_one_fence_started_twice_is_doubled() -> None:
    assert wrongs(judge([asked(), told()], [began(), *ran()], [found()])) == {Wrong.DOUBLED}


def test_a_start_after_an_acknowledged_cancel_is_told() -> None:
    cancelled = told(Call.CANCEL, at=3, state="cancelled", fence=1)
    events = [asked(), told(), Event(phase=Phase.INVOKE, call=Call.CANCEL, n=1, at=2.5), cancelled]
    job = found("cancelled", fence=1, result=None)
    assert judge(events, [], [job]).findings == ()
    assert Wrong.LATE_START in wrongs(judge(events, [began(at=3.1)], [job]))
    before = judge(events, [began(at=2.9)], [job])
    assert before.findings == ()


def test_a_start_after_the_outcome_is_told() -> None:
    assert wrongs(judge([asked(), told()], [*ran(1), began(2, at=9)], [found()])) == {Wrong.LATE_START}


@pytest.mark.parametrize("state", ["failed", "expired", "cancelled"])
def test_an_end_that_nobody_asked_for_is_told(state: str) -> None:
    assert wrongs(judge([asked(), told()], [], [found(state, result=None)])) == {Wrong.FAILED}


def test_a_job_that_nobody_asked_for_is_told() -> None:
    assert wrongs(judge([], ran(), [found()])) == {Wrong.UNASKED}


def recovered(harm: Harm, events: Sequence[Event], ledger: Sequence[Entry]) -> Recovery:
    (one,) = measure([harm], events, ledger)
    return one


def test_a_killed_worker_is_measured_until_the_last_of_its_jobs_runs_again() -> None:
    harm = Harm(fault=Fault.WORKER, at=10, back_at=11, worker="a")
    events = [told(n=1, at=2), told(n=2, at=2, job=OTHER)]
    ledger = [began(at=9), *ran(2, at=25, worker="b"), *ran(at=8, n=2, job=OTHER)]
    assert recovered(harm, events, ledger) == Recovery(Fault.WORKER, 15)
    assert recovered(harm, events, [began(at=9), *ran(2, at=31, worker="b")]).kept is False


def test_a_job_of_another_worker_says_nothing_about_the_killed_one() -> None:
    harm = Harm(fault=Fault.WORKER, at=10, back_at=11, worker="a")
    ledger = [began(at=9, worker="b"), *ran(2, at=60, worker="b"), began(at=9, n=2, job=OTHER), *ran(2, 12, 2, OTHER)]
    assert recovered(harm, [told(n=1, at=2), told(n=2, at=2, job=OTHER)], ledger) == Recovery(Fault.WORKER, 2)


def test_a_flush_is_measured_by_the_jobs_that_were_due_then() -> None:
    harm = Harm(fault=Fault.FLUSH, at=10, back_at=10)
    events = [told(n=1, at=9), told(n=2, at=9, job=OTHER, delay=5.0)]
    ledger = [*ran(at=12.5), *ran(at=30, n=2, job=OTHER)]
    assert recovered(harm, events, ledger) == Recovery(Fault.FLUSH, 2.5)


def test_a_shard_is_back_when_a_submit_was_acknowledged_and_a_job_started_on_it() -> None:
    harm = Harm(fault=Fault.SHARD, at=10, back_at=12, shard=1)
    events = [told(n=1, at=13), told(n=2, at=12.1, job=OTHER)]
    assert recovered(harm, events, [*ran(at=16), *ran(at=12.2, n=2, job=OTHER)]) == Recovery(Fault.SHARD, 4)
    assert recovered(harm, events, [*ran(at=12.3), *ran(at=12.2, n=2, job=OTHER)]) == Recovery(Fault.SHARD, 1)


def test_a_lost_api_is_measured_by_the_pause_in_what_is_acknowledged() -> None:
    harm = Harm(fault=Fault.API, at=10, back_at=12, until=14)
    events = [told(n=n, at=at) for n, at in enumerate([9, 10.2, 11.5, 11.6, 30.0])]
    assert recovered(harm, events, []).seconds == pytest.approx(1.3)


def test_an_added_shard_is_measured_until_every_api_and_a_job_used_it() -> None:
    harm = Harm(fault=Fault.ADD, at=10, back_at=11, shard=1)
    assert recovered(harm, [told(at=12), told(n=2, at=10.5, job=OTHER)], []) == Recovery(Fault.ADD, 2)
    assert recovered(harm, [told(n=2, at=10.5, job=OTHER)], []).kept is False


def test_a_frozen_primary_is_felt_until_its_jobs_run_and_every_submit_is_answered() -> None:
    harm = Harm(fault=Fault.FREEZE, at=10, back_at=11, shard=1, until=40)
    events = [told(n=1, at=9), told(n=3, at=13, job=JOB[:-1] + "3")]
    ledger = [*ran(at=15), *ran(at=12, n=2, job=OTHER)]
    assert recovered(harm, events, ledger) == Recovery(Fault.FREEZE, 5)
    refused = Event(phase=Phase.INFO, call=Call.SUBMIT, n=4, at=26)
    assert recovered(harm, [*events, refused], ledger) == Recovery(Fault.FREEZE, 16)


def test_what_could_not_be_measured_is_not_kept() -> None:
    one = recovered(Harm(fault=Fault.SHARD, at=10, back_at=12, shard=1), [], [])
    assert (one.seconds, one.kept) == (None, False)


DEAD = Harm(fault=Fault.DEAD, at=10, back_at=20, shard=2)
ADDED = Harm(fault=Fault.ADD, at=30, back_at=31, shard=1)
DRAINED = Harm(fault=Fault.DRAIN, at=40, back_at=41, shard=1)


def sdk(request: str, at: float, job: str | None = None, blamed: int | None = None, until: float = 0) -> list[Event]:
    """A request of the SDK that gave a job, or failed."""
    asked_for = Event(phase=Phase.INVOKE, call=Call.SUBMIT, n=1, at=at, request=request)
    phase = Phase.OK if job else Phase.INFO
    told_of = Event(phase=phase, call=Call.SUBMIT, n=1, at=max(until, at + 0.1), job=job, request=request, shard=blamed)
    return [asked_for, told_of]


def placed(*requests: list[Event]) -> Placement:
    return place([DEAD, ADDED, DRAINED], [event for request in requests for event in request])


def test_a_request_that_was_on_its_way_to_a_shard_that_died_may_fail() -> None:
    found = placed(sdk("a", at=9.9, blamed=2, until=15), sdk("b", at=11, blamed=2, until=16))
    assert (found.requests, found.on_the_way, found.failed) == (2, 2, 0)


@pytest.mark.parametrize(
    "request_",
    [
        sdk("after it was noticed", at=10.1 + NOTICED_SECONDS, blamed=2, until=19),
        sdk("before it died", at=5, blamed=2, until=9),
        sdk("of another shard", at=9.9, blamed=0, until=15),
        sdk("of no shard", at=9.9, until=15),
    ],
    ids=lambda events: str(events[0].request),
)
def test_any_other_request_that_fails_is_told(request_: list[Event]) -> None:
    found = placed(request_)
    assert (found.on_the_way, found.failed, found.good) == (0, 1, False)


def test_an_added_shard_must_get_its_share_of_the_requests() -> None:
    others = [sdk(f"other {n}", at=32 + n / 100, job=OTHER) for n in range(9)]
    batch = [event for _ in range(50) for event in sdk("batch", at=33, job=JOB)]
    few = placed(*others, batch)
    assert (few.share, few.fair, few.good) == (0.1, 0.5, False)
    assert placed(*others[:2], batch).good


def test_a_draining_shard_must_get_nothing_once_every_api_knows() -> None:
    share = sdk("while it was active", at=32, job=JOB)
    assert placed(share, sdk("before", at=40.5, job=JOB)).good
    after = placed(share, sdk("after", at=41.5, job=JOB))
    assert (after.drained, after.good) == (1, False)
