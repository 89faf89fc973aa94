"""Whether a full store is as fast as an empty one."""

from statistics import median

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import Rig, Workshop
from penstock.cli.bench.startlog import rate
from penstock.model.timing import seconds

FAR_AHEAD = seconds(3600)
ROUNDS = 3


def growth(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """The drain rate of a few jobs with many scheduled ahead, with many more queued behind, with many finished.

    Each is measured by turns with the same drain on a second, almost empty system, because the machine's own speed
    changes from minute to minute; the ratio is what counts.
    """
    few, queued, scheduled = amounts.few_jobs, amounts.queued_jobs, amounts.scheduled_jobs
    with workshop.rig() as full, workshop.rig() as empty:
        full.load(scheduled, FAR_AHEAD)
        ahead = Turns(full, empty, few).take(ROUNDS)
        behind = Turns(full, empty, few, behind=queued).take(1)
        ended = (ROUNDS + 1) * few + queued
        finished = Turns(full, empty, few).take(ROUNDS)
    return [
        Figure("growth", "drain, almost empty", median(ahead.empty + finished.empty), "/s", f"{few:,} jobs"),
        ahead.figure(f"with {scheduled:,} scheduled"),
        behind.figure(f"with {queued:,} queued too"),
        finished.figure(f"with {ended:,} finished"),
    ]


class Turns:
    """Drains of a full and an empty system by turns. `behind` more are in the way of the full one's."""

    def __init__(self, full: Rig, empty: Rig, jobs: int, *, behind: int = 0) -> None:
        self._rigs = full, empty
        self._jobs = jobs
        self._behind = behind
        self.full: list[float] = []
        self.empty: list[float] = []

    def take(self, rounds: int) -> "Turns":
        full, empty = self._rigs
        for _ in range(rounds):
            self.empty.append(rate(empty.drained(self._jobs)))
            self.full.append(rate(full.drained(self._jobs, behind=self._behind)))
            full.settle_down(self._jobs + self._behind)
        return self

    def figure(self, name: str) -> Figure:
        """The median of the ratios, each of two drains that followed each other."""
        ratio = median(full / empty for full, empty in zip(self.full, self.empty, strict=True))
        return Figure("growth", name, ratio, "×", f"{median(self.full):,.0f} /s")
