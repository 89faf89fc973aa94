"""A crowd of jobs that fall due in the same second: how soon all are dispatched, and what others notice of it."""

import time
from datetime import datetime, timedelta

from penstock.lab.bench.figure import Amounts, Figure
from penstock.lab.bench.rig import Rig, Workshop, patience_for
from penstock.lab.bench.startlog import JobStart, lateness_ms
from penstock.lab.children import ChildFailed
from penstock.model.clock import Clock, SystemClock
from penstock.model.lifecycle import State

PROBE = "probe"
STEP_SECONDS = 0.02
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
        due_at = _load(rig, jobs, clock)
        dispatched_after = _watch(rig, jobs, due_at, clock)
        crowd, probes = _parted(rig.starts.starts(), due_at)
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


def _load(rig: Rig, jobs: int, clock: Clock) -> datetime:
    """Submit the crowd; when it is due, which is still to come."""
    due_at = clock.now() + timedelta(seconds=SPARE_SECONDS + jobs / LOADED_PER_SECOND)
    rig.load(jobs, due_at=due_at)
    if clock.now() >= due_at:
        raise ChildFailed(f"{jobs:,} jobs could not be submitted before they were due; try a smaller --scale")
    time.sleep((due_at - clock.now()).total_seconds())
    return due_at


def _watch(rig: Rig, jobs: int, due_at: datetime, clock: Clock) -> float:
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
            dispatched_after = 0.0 if rig.waiting(State.SCHEDULED) else (clock.now() - due_at).total_seconds()
        time.sleep(max(0.0, STEP_SECONDS - (clock.monotonic() - began)))
    rig.settle_down(jobs + probes)
    return dispatched_after or (clock.now() - due_at).total_seconds()


def _parted(starts: list[JobStart], due_at: datetime) -> tuple[list[JobStart], list[JobStart]]:
    """The starts of the crowd, and the others."""
    expected_at = due_at.timestamp()
    return (
        [start for start in starts if start.expected_at == expected_at],
        [start for start in starts if start.expected_at != expected_at],
    )
