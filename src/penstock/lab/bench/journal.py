"""What the journal costs: the same work on a system that keeps events and on one that does not, by turns."""

import asyncio
from collections.abc import Callable
from statistics import median

from penstock.cli.process import run
from penstock.lab.bench.app import rate
from penstock.lab.bench.events import open_readers
from penstock.lab.bench.rig import ONE_WORKER, TYPE, Amounts, Figure, Rig, Workshop
from penstock.lab.bench.throughput import CALLERS, posts_per_second, submits
from penstock.model.clock import SystemClock
from penstock.model.lifecycle import State

ROUNDS = 5
READERS = 10
NOTHING_KEPT = {**ONE_WORKER, "PENSTOCK_EVENTS_KEEP": "false"}

Measured = Callable[[Rig], float]


def journal(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Drain, bulk, 64 callers and one caller, with the journal ÷ without; and the drain with ten readers of everything.

    The two systems take turns, because the machine's own speed changes from minute to minute. The ratio counts.
    """
    kinds: dict[str, Measured] = {
        "drain": lambda rig: rate(rig.drain(amounts.few_jobs)),
        "bulk": lambda rig: _bulk(rig, amounts.few_jobs),
        f"{CALLERS} callers": lambda rig: _call(rig, CALLERS, amounts.submit_seconds),
        "1 caller": lambda rig: _call(rig, 1, amounts.submit_seconds / 2),
    }
    with workshop.rig() as kept, workshop.rig(NOTHING_KEPT) as bare:
        figures = [_compare(name, measure, measure, kept, bare) for name, measure in kinds.items()]
        watched = _compare(
            f"drain, {READERS} readers", lambda rig: _watched_drain(rig, amounts.few_jobs), kinds["drain"], kept, bare
        )
    return [*figures, watched]


def _compare(name: str, measure: Measured, beside: Measured, kept: Rig, bare: Rig) -> Figure:
    """The median of the ratios of two measurements that followed each other."""
    found: list[float] = []
    ratios: list[float] = []
    for _ in range(ROUNDS):
        without = beside(bare)
        found.append(measure(kept))
        ratios.append(found[-1] / without)
    note = f"{median(found):,.0f} /s; {min(ratios):.2f}–{max(ratios):.2f}"
    return Figure("journal", f"{name}, with the journal ÷ without", median(ratios), "×", note)


def _bulk(rig: Rig, jobs: int) -> float:
    rig.client.pause(TYPE)
    took = rig.load(jobs)
    _run_waiting(rig)
    return jobs / took


def _call(rig: Rig, callers: int, seconds: float) -> float:
    rig.client.pause(TYPE)
    found = run(posts_per_second(rig.url, submits(rig.url), callers, seconds, SystemClock()))
    _run_waiting(rig)
    return found


def _run_waiting(rig: Rig) -> None:
    """Let all jobs that wait start, so that the next measurement finds none."""
    rig.starts.clear()
    waiting = rig.count_waiting(State.QUEUED)
    rig.client.resume(TYPE)
    rig.wait_for_starts(waiting)


def _watched_drain(rig: Rig, jobs: int) -> float:
    return asyncio.run(_drain_with_readers(rig, jobs))


async def _drain_with_readers(rig: Rig, jobs: int) -> float:
    readers = await open_readers(rig, READERS, decodes=0)
    try:
        return rate(await asyncio.to_thread(rig.drain, jobs))
    finally:
        for reader in readers:
            reader.transport.abort()
