"""All contenders on the same trace, side by side, with the clairvoyant as the measure."""

import random
from collections.abc import Callable, Iterator
from math import cos, pi
from typing import TypeAlias

from msgspec import Struct

from penstock.lab.simulation.scalers import FixedSize, Keda, Ours, StepAlarms, clairvoyant
from penstock.lab.simulation.world import Machines, Sample, Scaler, SimulatedRun, Trace, TracedJob, World, trace_of
from penstock.model.fleets import Fleet

CONTENDERS = (Ours.name, StepAlarms.name, Keda.name, FixedSize.name, "clairvoyant")
COMPARED = 0.95
"""The percentile of waits at which contenders are compared."""


class Result(Struct, frozen=True, kw_only=True):
    """How one contender did. Its worker-seconds also as multiples of the clairvoyant's, and of the bare work."""

    contender: str
    wait_p50_seconds: float
    wait_p95_seconds: float
    wait_p99_seconds: float
    worker_seconds: float
    to_clairvoyant: float
    to_work: float
    starts: int
    peak: int


class Scores(Struct, frozen=True, kw_only=True):
    """A trace, the fleet that ran it, and the result of each contender."""

    trace: str
    jobs: int
    work_seconds: float
    machines: Machines
    fleet: Fleet
    results: list[Result]


class Contest(Struct, frozen=True):
    """The scores, and backlog and workers over time for the plot."""

    scores: Scores
    samples: dict[str, list[Sample]]


def contest(
    trace: Trace, machines: Machines, fleet: Fleet, tell: Callable[[str], None] = lambda _contender: None
) -> Contest:
    """Run every contender on the trace; `tell` is called with the name of each that has run."""
    runs = {}
    for name, run in _runs(trace, machines, fleet):
        runs[name] = run
        tell(name)
    best = runs["clairvoyant"].worker_seconds * machines.capacity / trace.work_seconds
    scores = Scores(
        trace=trace.name,
        jobs=len(trace.jobs),
        work_seconds=trace.work_seconds,
        machines=machines,
        fleet=fleet,
        results=[
            _result(name, run, run.worker_seconds * machines.capacity / trace.work_seconds, best)
            for name, run in runs.items()
        ],
    )
    return Contest(scores, {name: run.samples for name, run in runs.items()})


def _runs(trace: Trace, machines: Machines, fleet: Fleet) -> Iterator[tuple[str, SimulatedRun]]:
    ours = World(trace, machines, Ours(fleet, machines)).play()
    yield Ours.name, ours
    rivals: tuple[Scaler, ...] = (StepAlarms(machines), Keda(machines))
    for rival in rivals:
        yield rival.name, World(trace, machines, rival).play()
    wait = percentile(ours.waits, COMPARED)
    yield FixedSize.name, smallest_fixed(trace, machines, wait)
    yield "clairvoyant", clairvoyant(trace, machines, ours, wait, percentile(ours.waits, 0.99))


def smallest_fixed(trace: Trace, machines: Machines, wait: float) -> SimulatedRun:
    """The smallest fixed size whose 95th percentile is no worse than `wait`; the largest there may be if none is."""
    low, high = 1, machines.max
    while low < high:
        middle = (low + high) // 2
        run = World(trace, machines, FixedSize(middle)).play()
        low, high = (low, middle) if percentile(run.waits, COMPARED) <= wait else (middle + 1, high)
    return World(trace, machines, FixedSize(low)).play()


def percentile(waits: list[float], part: float) -> float:
    """The wait that such a part of the jobs did not exceed."""
    return sorted(waits)[min(len(waits) - 1, int(part * len(waits)))]


def _result(name: str, run: SimulatedRun, to_work: float, best: float) -> Result:
    return Result(
        contender=name,
        wait_p50_seconds=percentile(run.waits, 0.5),
        wait_p95_seconds=percentile(run.waits, 0.95),
        wait_p99_seconds=percentile(run.waits, 0.99),
        worker_seconds=run.worker_seconds,
        to_clairvoyant=to_work / best,
        to_work=to_work,
        starts=run.starts,
        peak=run.peak,
    )


HOUR = 3600.0

Rate: TypeAlias = Callable[[float], float]


def burst(rng: random.Random, scale: float) -> Iterator[TracedJob]:
    """Four hours: every so often a crowd of jobs within a few seconds, and nothing between."""
    at = 300.0
    while at < 4 * HOUR:
        for _ in range(int(scale * rng.randint(200, 1200))):
            yield TracedJob(at + rng.uniform(0, 5), rng.expovariate(1 / 4.0))
        at += 120 + rng.expovariate(1 / 600.0)


def diurnal(rng: random.Random, scale: float) -> Iterator[TracedJob]:
    """A day: from almost nothing at night to a peak at noon, and back."""
    peak = 2.4 * scale
    rate: Rate = lambda at: peak * (0.02 + 0.98 * (0.5 - 0.5 * cos(2 * pi * at / (24 * HOUR))) ** 2)  # noqa: E731
    yield from _arrivals(rng, rate, peak, 24 * HOUR, lambda: rng.expovariate(1 / 4.0))


def onoff(rng: random.Random, scale: float) -> Iterator[TracedJob]:
    """Six hours of phases: steady work for some minutes, then none for some."""
    on, switch = False, 0.0
    while switch < 6 * HOUR:
        length = rng.uniform(300, 1200)
        if on:
            rate = scale * rng.uniform(1.0, 6.0)
            jobs = _arrivals(rng, lambda _: 1.0, 1.0, length * rate, lambda: rng.expovariate(1 / 4.0))
            yield from (TracedJob(switch + job.at / rate, job.seconds) for job in jobs)
        on, switch = not on, switch + length


def heavytail(rng: random.Random, scale: float) -> Iterator[TracedJob]:
    """Eight hours of steady arrivals whose run times have no typical size: most are short, a few take half an hour."""
    yield from _arrivals(rng, lambda _: scale, scale, 8 * HOUR, lambda: min(1800.0, 1.2 * rng.paretovariate(1.3)))


def _arrivals(
    rng: random.Random, rate: Rate, peak: float, until: float, service: Callable[[], float]
) -> Iterator[TracedJob]:
    """A Poisson process whose rate changes with time, by thinning one at its peak."""
    at = rng.expovariate(peak)
    while at < until:
        if rng.random() * peak <= rate(at):
            yield TracedJob(at, service())
        at += rng.expovariate(peak)


PATTERNS: dict[str, Callable[[random.Random, float], Iterator[TracedJob]]] = {
    "burst": burst,
    "diurnal": diurnal,
    "onoff": onoff,
    "heavytail": heavytail,
}


def make_trace(name: str, seed: int, scale: float = 1.0) -> Trace:
    """Generate the trace of a pattern; `scale` multiplies its size."""
    return trace_of(name, PATTERNS[name](random.Random(seed), scale))
