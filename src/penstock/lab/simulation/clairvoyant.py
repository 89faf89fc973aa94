"""A scaler that knows the future: every job and its run time, before it comes.

It has two ways, and takes the cheaper. One is a plan of its own: jobs in the order they become due, each on the slot
that comes free last but in time, so that slots run without gaps. It waits out a gap when that is cheaper than a
start-up; else it stops the worker, and starts one so that it is up just in time. In time is within `wait` of being due;
one job in twenty may be late, up to `latest`, where that saves a start. The other is the run it is compared with, done
again with hindsight: every job where and when it ran, but workers that start just in time and stop as soon as nothing
comes to them within a start-up.

In its own plan slots are rented singly, a worker being `capacity` of them, and there may be any number: advantages no
real fleet has. Its cost is one that could be reached, not a proven minimum; no scaler costs less than the work.
"""

from bisect import bisect_right, insort
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from penstock.lab.simulation.world import SAMPLES, Machines, Sample, SimulatedRun, Trace

LATE = 0.05
LOOKAHEAD = 50


class HindsightTerms(Struct, frozen=True):
    """A plan: slots must come free within `wait` of a job's being due, and for a few jobs within `latest`.

    A new worker may begin `linger` after its first job is due, where it then runs on into the jobs that follow.
    """

    wait: float
    latest: float
    linger: float


def clairvoyant(trace: Trace, machines: Machines, compared: SimulatedRun, wait: float, latest: float) -> SimulatedRun:
    """The cheapest way it has, with 95 of 100 waits no longer than `wait`, and none of its plan's than `latest`."""
    plans = (_plan(trace, machines, HindsightTerms(wait, latest, linger)) for linger in (0.0, wait))
    run, begins = min(plans, key=lambda plan: plan[0].worker_seconds)
    if compared.hindsight_seconds < run.worker_seconds:
        return replace(compared, worker_seconds=compared.hindsight_seconds)
    run.waits = [begin - job.at for begin, job in zip(begins, trace.jobs, strict=True)]
    run.samples = _samples(trace, begins, machines)
    return run


def _plan(trace: Trace, machines: Machines, terms: HindsightTerms) -> tuple[SimulatedRun, list[float]]:
    """What a plan costs, and when each job begins. `free` holds when each slot comes free, in order."""
    free: list[float] = []
    begins: list[float] = []
    run = SimulatedRun()
    slot_seconds, late = 0.0, 0
    for number, job in enumerate(trace.jobs):
        slot = bisect_right(free, job.at + terms.wait)
        if not slot and free and free[0] <= job.at + terms.latest and late < LATE * len(begins):
            slot, late = 1, late + 1
        begin, paid = _assign(free, slot, job.at, machines.startup)
        if begin is None:
            run.starts += 1
            begin = _delay_start(trace, number, job.at + terms.linger)
        slot_seconds += paid + job.seconds
        insort(free, begin + job.seconds)
        begins.append(begin)
        run.peak = max(run.peak, -(-len(free) // machines.capacity))
    run.worker_seconds, run.ended = slot_seconds / machines.capacity, free[-1]
    return run, begins


def _assign(free: list[float], slot: int, due: float, startup: float) -> tuple[float | None, float]:
    """When a job begins on the slot before index `slot`, and the cost beside its run; None if one must be started."""
    gap = due - free[slot - 1] if slot else float("inf")
    found = free.pop(slot - 1) if slot else due
    return (None, startup) if gap > startup else (max(due, found), max(0.0, gap))


def _delay_start(trace: Trace, number: int, until: float) -> float:
    """When a new slot begins: later than its first job is due, where it then runs on into the jobs that follow."""
    begin = trace.jobs[number].at
    work = 0.0
    for job, following in pairwise(trace.jobs[number : number + LOOKAHEAD]):
        work += job.seconds
        if following.at - work > until:
            break
        begin = max(begin, following.at - work)
    return begin


def _samples(trace: Trace, begins: list[float], machines: Machines) -> list[Sample]:
    """Jobs waiting and slots in use, over time; gaps that were waited out are not drawn."""
    changes = [(job.at, 1, 0) for job in trace.jobs]
    for begin, job in zip(begins, trace.jobs, strict=True):
        changes += [(begin, -1, 1), (begin + job.seconds, 0, -1)]
    every = max(1.0, trace.ends * 1.05 / SAMPLES)
    samples: list[Sample] = []
    waiting = running = most_waiting = most_running = 0
    for at, more_waiting, more_running in sorted(changes, key=lambda change: change[0]):
        while len(samples) * every <= at:
            samples.append(Sample(len(samples) * every, most_waiting, -(-most_running // machines.capacity)))
            most_waiting, most_running = waiting, running
        waiting, running = waiting + more_waiting, running + more_running
        most_waiting, most_running = max(most_waiting, waiting), max(most_running, running)
    return samples
