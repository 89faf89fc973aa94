"""How fast jobs that wait are started and settled."""

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import Workshop
from penstock.cli.bench.startlog import rate


def drain(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """No-op jobs loaded while their queue is paused; (n - 1) / (last start - first start)."""
    with workshop.rig() as rig:
        starts = rig.drained(amounts.drain_jobs)
    return [Figure("drain", "jobs started", rate(starts), "/s", f"{len(starts):,} no-op jobs")]
