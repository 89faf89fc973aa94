"""The judge of deliveries in `make cluster` reports what is wrong: each log of the sink here breaks one promise."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cluster import report
from cluster.checker import Found
from cluster.deliveries import BadDelivery, DeliveryVerdict, Subscriber, judge_deliveries
from cluster.sink import Arrival, Sink
from penstock.events.cloudevents import OutgoingEvent, encode_batch, encode_event
from penstock.model.events import JobEvent, event_id
from penstock.model.ids import JobId
from penstock.model.lifecycle import State
from penstock.webhooks import sign
from tests.unit.test_cluster_report import PLACED, WELL

JOB = JobId("01900000-0000-7001-8000-000000000001")
OTHER = JobId("01900000-0000-7002-8000-000000000002")
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
EVERY = Subscriber("every", SECRET)


def event(version: int, job: JobId = JOB, after: timedelta = timedelta()) -> OutgoingEvent:
    known = JobEvent(
        id=event_id(job, version),
        job=job,
        version=version,
        type="quick",
        queue="quick",
        move="submit",
        before=None,
        after=State.QUEUED,
        attempt=1,
        reason=None,
        at=datetime.now(UTC) + after,
    )
    return OutgoingEvent(known, None)


def arrived(*events: OutgoingEvent, secret: str = SECRET, path: str = "/every") -> Arrival:
    body = encode_event(events[0], "penstock") if len(events) == 1 else encode_batch(events, "penstock")
    now = datetime.now(UTC)
    return Arrival(now, path, dict(sign([secret], "msg", now, body)), body)


def found(version: int, job: JobId = JOB, type: str = "quick") -> Found:
    return Found(id=job, n=1, state="succeeded", fence=1, type=type, version=version)


def wrongs(verdict: DeliveryVerdict) -> list[BadDelivery]:
    return [finding.wrong for finding in verdict.findings]


def judged(log: Sequence[Arrival], *jobs: Found) -> DeliveryVerdict:
    return judge_deliveries(EVERY, log, jobs)


def test_nothing_is_said_against_events_that_came_in_order_single_or_in_a_batch() -> None:
    log = [arrived(event(1)), arrived(event(2), event(1, OTHER), event(3))]
    assert judged(log, found(3), found(1, OTHER)) == DeliveryVerdict("every", 2, 4, 0, ())


def test_repeated_events_are_counted_and_are_no_fault() -> None:
    log = [arrived(event(1)), arrived(event(2)), arrived(event(1)), arrived(event(1)), arrived(event(2))]
    verdict = judged(log, found(2))
    assert (verdict.events, verdict.repeated, verdict.findings) == (2, 3, ())


@pytest.mark.parametrize("came", [[], [1, 2], [1, 3], [2, 3]])
def test_a_version_that_never_came_is_missed(came: list[int]) -> None:
    verdict = judged([arrived(event(version)) for version in came], found(3))
    assert wrongs(verdict) == [BadDelivery.MISSED]
    missed = [version for version in (1, 2, 3) if version not in came]
    assert str(missed) in verdict.findings[0].what


def test_a_first_arrival_after_a_later_version_is_out_of_order() -> None:
    assert wrongs(judged([arrived(event(v)) for v in (1, 3, 2, 1)], found(3))) == [BadDelivery.OUT_OF_ORDER]
    assert wrongs(judged([arrived(event(2), event(1))], found(2))) == [BadDelivery.OUT_OF_ORDER]


def test_jobs_have_no_order_between_them() -> None:
    log = [arrived(event(version, job)) for version, job in ((1, OTHER), (2, OTHER), (1, JOB))]
    assert judged(log, found(1), found(2, OTHER)).findings == ()


def test_an_event_of_no_job_or_of_a_version_that_is_not_there_is_unknown() -> None:
    assert wrongs(judged([arrived(event(1))])) == [BadDelivery.UNKNOWN]
    assert wrongs(judged([arrived(event(1)), arrived(event(2))], found(1))) == [BadDelivery.UNKNOWN]


def test_an_event_that_came_before_its_commit_is_early() -> None:
    assert wrongs(judged([arrived(event(1, after=timedelta(seconds=30)))], found(1))) == [BadDelivery.EARLY]


def test_a_message_with_the_signature_of_another_secret_or_body_counts_for_nothing() -> None:
    other = "whsec_" + base64.b64encode(b"o" * 32).decode()
    forged = arrived(event(1), secret=other)
    assert wrongs(judged([forged], found(1))) == [BadDelivery.BADLY_SIGNED, BadDelivery.MISSED]
    good = arrived(event(1))
    changed = Arrival(good.at, good.path, good.headers, good.body + b" ")
    assert wrongs(judged([changed, good], found(1))) == [BadDelivery.BADLY_SIGNED]


def test_a_subscription_is_judged_by_its_own_path_and_type() -> None:
    quick = Subscriber("quick", SECRET, ["quick"])
    log = [arrived(event(1), path="/quick"), arrived(event(1, OTHER), path="/every")]
    jobs = [found(1), found(1, OTHER, "write")]
    assert judge_deliveries(quick, log, jobs) == DeliveryVerdict("quick", 1, 1, 0, ())


def test_a_bad_delivery_is_printed_and_breaks_the_run() -> None:
    bad, well = judged([], found(1)), judged([arrived(event(1))], found(1))
    said = "\n".join(report.lines(WELL, PLACED, (), (), 0, (), [bad]))
    assert f"WRONG  webhooks every: missed: versions [1] of 1 of job {JOB}" in said
    assert report.good(WELL, PLACED, (), (), [well])
    assert not report.good(WELL, PLACED, (), (), [well, bad])


def test_a_sink_to_which_nothing_came_breaks_the_run() -> None:
    assert not report.good(WELL, PLACED, (), (), [judged([])])


def test_a_line_of_the_log_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "sink.jsonl"
    whole = msgspec.json.encode(arrived(event(1)))
    log.write_bytes(b"\n" + whole + b"\n" + whole[:40] + b"\n" + whole + b"\n" + whole[:80])
    assert len(Sink(tmp_path, log).arrivals()) == 2
