"""Four ways in which work comes. Each is made from a seed: the same seed, the same jobs."""

import random
from collections.abc import Callable, Iterator
from math import cos, pi
from typing import TypeAlias

from penstock.autoscaler.simulation.trace import Trace, TracedJob, trace_of

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


def made(name: str, seed: int, scale: float = 1.0) -> Trace:
    """The trace of a pattern; `scale` is how much of it there is."""
    return trace_of(name, PATTERNS[name](random.Random(seed), scale))
