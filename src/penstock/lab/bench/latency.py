"""How soon jobs start: on an idle system, after their due time, and when a crowd falls due in the same second."""

import time
from datetime import datetime, timedelta

from penstock.lab.bench.app import JobStart, lateness_ms
from penstock.lab.bench.rig import PAD, TYPE, Amounts, Figure, Rig, Workshop, patience_for
from penstock.lab.children import ChildFailed
from penstock.model.clock import Clock, SystemClock
from penstock.model.lifecycle import State

STEP_SECONDS = 0.02
SETTLE_SECONDS = 0.5
DUE_AFTER = timedelta(seconds=1.5)
PATIENCE_SECONDS = 20.0


def latency(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """One job every 20 ms through the SDK's client, timed from the call; then jobs due one after another."""
    clock = SystemClock()
    with workshop.rig() as rig:
        _submit_steadily(rig, 10, clock)
        time.sleep(SETTLE_SECONDS)
        rig.starts.clear()
        _submit_steadily(rig, amounts.latency_jobs, clock)
        figures = _quantiles(rig, "submit → start", amounts.latency_jobs)
        rig.starts.clear()
        _submit_due(rig, amounts.due_jobs, clock)
        return figures + _quantiles(rig, "due → start", amounts.due_jobs)


def _submit_steadily(rig: Rig, jobs: int, clock: Clock) -> None:
    for number in range(jobs):
        began = clock.monotonic()
        rig.client.submit(TYPE, {"number": number, "expected_at": clock.now().timestamp(), "pad": PAD})
        time.sleep(max(0.0, STEP_SECONDS - (clock.monotonic() - began)))


def _submit_due(rig: Rig, jobs: int, clock: Clock) -> None:
    """Jobs that fall due 20 ms apart, the first when all have been submitted."""
    first = clock.now() + DUE_AFTER
    due = [first + timedelta(seconds=STEP_SECONDS * number) for number in range(jobs)]
    rig.client.submit_many(
        {"type": TYPE, "params": {"number": 0, "expected_at": at.timestamp(), "pad": PAD}, "scheduled_at": at}
        for at in due
    )


def _quantiles(rig: Rig, name: str, jobs: int) -> list[Figure]:
    if not rig.starts.wait_for(jobs, PATIENCE_SECONDS):
        raise ChildFailed(f"only {rig.starts.count()} of {jobs} jobs started in {PATIENCE_SECONDS:.0f} s")
    starts = rig.starts.starts()
    return [
        Figure("latency", f"{name}, {label}", lateness_ms(starts, quantile), "ms", note)
        for label, quantile, note in (("p50", 0.5, "idle, a job every 20 ms"), ("p99", 0.99, ""))
    ]


PROBE = "probe"
LOOK_SECONDS = 0.1
LOADED_PER_SECOND = 8_000
SPARE_SECONDS = 3.0


def due(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """All are submitted for one instant ahead of it. From then on a job of another queue is submitted every 20 ms."""
    clock, jobs = SystemClock(), amounts.crowd_jobs
    with workshop.rig() as rig:
        rig.client.submit(PROBE, {"expected_at": 0.0})
        rig.starts.wait_for(2, patience_for(2))
        rig.starts.clear()
        due_at = _submit_crowd(rig, jobs, clock)
        dispatched_after = _watch_crowd(rig, jobs, due_at, clock)
        crowd, probes = _split(rig.starts.starts(), due_at)
    return [
        Figure(
            "due", "all dispatched after", dispatched_after, "s", f"{jobs:,} jobs due in the same second; queued then"
        ),
        Figure("due", "all started after", crowd[-1].started_at - due_at.timestamp(), "s", ""),
        Figure("due", "first started after", lateness_ms(crowd[:1], 0), "ms", ""),
        Figure(
            "due", "another queue meanwhile, p50", lateness_ms(probes, 0.5), "ms", f"{len(probes):,} submits → starts"
        ),
        Figure("due", "another queue meanwhile, p99", lateness_ms(probes, 0.99), "ms", ""),
    ]


def _submit_crowd(rig: Rig, jobs: int, clock: Clock) -> datetime:
    """Submit the crowd; when it is due, which is still to come."""
    due_at = clock.now() + timedelta(seconds=SPARE_SECONDS + jobs / LOADED_PER_SECOND)
    rig.load(jobs, due_at=due_at)
    if clock.now() >= due_at:
        raise ChildFailed(f"{jobs:,} jobs could not be submitted before they were due; try a smaller --scale")
    time.sleep((due_at - clock.now()).total_seconds())
    return due_at


def _watch_crowd(rig: Rig, jobs: int, due_at: datetime, clock: Clock) -> float:
    """Submit probes until the crowd has started; the seconds after which none of it was scheduled any more."""
    probes, dispatched_after, look_at = 0, 0.0, 0.0
    deadline = clock.monotonic() + patience_for(jobs)
    while rig.starts.count() < jobs:
        if clock.monotonic() > deadline:
            raise ChildFailed(f"only {rig.starts.count():,} of {jobs:,} due jobs started in {patience_for(jobs):.0f} s")
        began = clock.monotonic()
        rig.client.submit(PROBE, {"expected_at": clock.now().timestamp()})
        probes += 1
        if not dispatched_after and began >= look_at:
            look_at = began + LOOK_SECONDS
            dispatched_after = 0.0 if rig.count_waiting(State.SCHEDULED) else (clock.now() - due_at).total_seconds()
        time.sleep(max(0.0, STEP_SECONDS - (clock.monotonic() - began)))
    rig.wait_for_starts(jobs + probes)
    return dispatched_after or (clock.now() - due_at).total_seconds()


def _split(starts: list[JobStart], due_at: datetime) -> tuple[list[JobStart], list[JobStart]]:
    """The starts of the crowd, and the others."""
    expected_at = due_at.timestamp()
    return (
        [start for start in starts if start.expected_at == expected_at],
        [start for start in starts if start.expected_at != expected_at],
    )
