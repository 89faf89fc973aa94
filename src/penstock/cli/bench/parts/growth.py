"""Whether a full store is as fast as an empty one."""

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import Rig, Workshop
from penstock.cli.bench.startlog import rate
from penstock.model.timing import seconds

FAR_AHEAD = seconds(3600)


def growth(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """The drain rate of a few jobs: alone, with many scheduled ahead, with many more queued behind, with many finished.

    One system after another state, so that each rate is compared with the first one of the same minute.
    """
    few, queued = amounts.few_jobs, amounts.queued_jobs
    with workshop.rig() as rig:
        alone = _rate(rig, few)
        rig.load(amounts.scheduled_jobs, FAR_AHEAD)
        ahead = _rate(rig, few)
        behind = _rate(rig, few, behind=queued)
        rig.settle_down(few + queued)
        finished = _rate(rig, few)
    return [
        Figure("growth", "drain, almost empty", alone, "/s", f"{few:,} jobs"),
        Figure("growth", f"with {amounts.scheduled_jobs:,} scheduled", ahead / alone, "×", f"{ahead:,.0f} /s"),
        Figure("growth", f"with {queued:,} queued too", behind / alone, "×", f"{behind:,.0f} /s"),
        Figure("growth", f"with {3 * few + queued:,} finished", finished / alone, "×", f"{finished:,.0f} /s"),
    ]


def _rate(rig: Rig, jobs: int, *, behind: int = 0) -> float:
    return rate(rig.drained(jobs, behind=behind))
