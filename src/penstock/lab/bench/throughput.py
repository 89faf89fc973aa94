"""How fast jobs are accepted and started: one by one, in bulk, and with many others waiting or finished."""

from collections.abc import Sequence
from statistics import median

from penstock.cli.process import run
from penstock.lab.bench.app import rate
from penstock.lab.bench.load import noops, posts_per_second, submits
from penstock.lab.bench.rig import BATCH, TYPE, Amounts, Figure, Rig, Workshop
from penstock.model.clock import SystemClock, seconds

CALLERS = 64


def submit(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """One caller, then 64; beside them the same server's rate for a POST that it only reads and answers.

    The queue is paused meanwhile, so that the rate is that of submits alone.
    """
    with workshop.rig() as rig:
        rig.client.pause(TYPE)

        def measure(requests: Sequence[bytes], callers: int) -> float:
            return run(posts_per_second(rig.url, requests, callers, amounts.submit_seconds, SystemClock()))

        one = measure(submits(rig.url), 1)
        many = measure(submits(rig.url), CALLERS)
        bare = measure(noops(rig.url), CALLERS)
    return [
        Figure("submit", "1 caller", one, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers", many, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers, no-op POST", bare, "/s", "the same server, nothing stored"),
        Figure("submit", "submit / no-op POST", many / bare, "×"),
    ]


def bulk(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Batches of a thousand through the SDK's client, one after the other."""
    with workshop.rig() as rig:
        rig.client.pause(TYPE)
        seconds = rig.load(amounts.bulk_jobs)
    return [Figure("bulk", "jobs accepted", amounts.bulk_jobs / seconds, "/s", f"{BATCH:,} per call, one caller")]


def drain(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """No-op jobs loaded while their queue is paused; (n - 1) / (last start - first start)."""
    with workshop.rig() as rig:
        starts = rig.drain(amounts.drain_jobs)
    return [Figure("drain", "jobs started", rate(starts), "/s", f"{len(starts):,} no-op jobs")]


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
    """Drains of a full and an empty system by turns. `behind` more jobs are backlog in the full one."""

    def __init__(self, full: Rig, empty: Rig, jobs: int, *, behind: int = 0) -> None:
        self._rigs = full, empty
        self._jobs = jobs
        self._behind = behind
        self.full: list[float] = []
        self.empty: list[float] = []

    def take(self, rounds: int) -> "Turns":
        full, empty = self._rigs
        for _ in range(rounds):
            self.empty.append(rate(empty.drain(self._jobs)))
            self.full.append(rate(full.drain(self._jobs, behind=self._behind)))
            full.wait_for_starts(self._jobs + self._behind)
        return self

    def figure(self, name: str) -> Figure:
        """The median of the ratios, each of two drains that followed each other."""
        ratio = median(full / empty for full, empty in zip(self.full, self.empty, strict=True))
        return Figure("growth", name, ratio, "×", f"{median(self.full):,.0f} /s")
