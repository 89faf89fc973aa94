"""How soon a job starts on an idle system: after its submit, and after the time it was due."""

import time
from datetime import timedelta

from penstock.lab.bench.figure import Amounts, Figure
from penstock.lab.bench.rig import PAD, TYPE, Rig, Workshop
from penstock.lab.bench.startlog import lateness_ms
from penstock.lab.children import ChildFailed
from penstock.model.clock import Clock, SystemClock

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
