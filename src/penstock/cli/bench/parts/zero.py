"""How soon a job starts when there is no worker: from its submit, with the start of the worker that runs it."""

import time

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import FROM_ZERO, PAD, TYPE, Rig, Workshop
from penstock.cli.bench.startlog import lateness_ms
from penstock.cli.children import ChildFailed
from penstock.model.timing import SystemClock

FLEET = "default"
GONE_SECONDS = 30.0
START_SECONDS = 30.0


def zero(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Again and again: let the fleet go to zero, leave it to its policy, submit one job, and see it start."""
    clock = SystemClock()
    with workshop.rig(FROM_ZERO) as rig:
        rig.starts.clear()
        for number in range(amounts.zero_jobs):
            _go_to_zero(rig, clock)
            rig.client.submit(TYPE, {"number": number, "expected_at": clock.now().timestamp(), "pad": PAD})
            if not rig.starts.wait_for(number + 1, START_SECONDS):
                raise ChildFailed(f"no worker started a job within {START_SECONDS:.0f} s")
        starts = rig.starts.starts()
    return [
        Figure("zero", f"no worker → first start, {label}", lateness_ms(starts, quantile), "ms", note)
        for label, quantile, note in (("p50", 0.5, f"{len(starts)} times"), ("p95", 0.95, ""))
    ]


def _go_to_zero(rig: Rig, clock: SystemClock) -> None:
    """By hand, so that nobody has to wait for the policy; then the policy decides again."""
    rig.client.scale_fleet(FLEET, 0)
    deadline = clock.monotonic() + GONE_SECONDS
    while rig.client.workers():
        if clock.monotonic() > deadline:
            raise ChildFailed(f"the worker did not go within {GONE_SECONDS:.0f} s")
        time.sleep(0.05)
    rig.client.scale_fleet(FLEET, "auto")
    # So that the autoscaler has seen the fleet at zero, and is idle.
    time.sleep(1.2)
