"""How many workers a fleet should have: from a reading and the memory of earlier ones to a decision. Pure."""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler import policy_wait
from penstock.autoscaler.memory import Memory, Peak, learn, remember, since
from penstock.model.clock import seconds
from penstock.model.durations import settled
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.fleet_readings import (
    OBSERVE_SECONDS,
    CompleteReading,
    FleetReading,
    Tally,
    Unknown,
    complete,
    known,
)
from penstock.model.fleets import Depth, Fleet, Wait
from penstock.model.wire.fleets import FleetDecision, look_of


def manual_decision(effective: EffectiveFleet, reading: FleetReading) -> FleetDecision | None:
    """What an operator has ordered; None where the policy decides."""
    if effective.paused:
        return _decision(reading, reading.present or 0, "paused: left as it is")
    if effective.queues == ():
        return _scale_to(0, reading, "serves no queue")
    if effective.count is not None:
        return _scale_to(effective.count, reading, "scaled by hand")
    return None


def watched_decision(count: Tally, reading: FleetReading) -> FleetDecision:
    """For a fleet that something else scales: nothing to do, whatever is due."""
    here = reading.present
    if isinstance(count, Unknown) or here is None:
        return _decision(reading, here or 0, "scaled elsewhere; only watched, and cannot be seen now")
    return _decision(reading, count, f"scaled elsewhere: {count} wanted, {here} here; only watched")


def decide(fleet: Fleet, reading: FleetReading, memory: Memory) -> tuple[FleetDecision, Memory]:
    """What to do with a fleet now, and what to remember until the next reading.

    The desired count is never below min nor above max, and never zero while there is due work, or work that will be due
    before a worker could be up. No more workers are stopped than are idle. What could not be observed changes nothing.
    """
    seen = complete(fleet, reading)
    if not isinstance(seen, CompleteReading):
        return _decide_blind(fleet, reading, memory, seen)
    workers, reason, memory = _wanted(fleet, seen, memory)
    memory = replace(memory, looked_at=seen.at, blind_since=None)
    bounds = _bounds(fleet, seen)
    wanted = bounds.clamp(workers)
    keep, keep_last = _keep_seconds(fleet, seen, memory)
    memory = replace(
        memory,
        peaks=remember(memory.peaks, Peak(seen.at, wanted), seconds(keep)),
        wanted_at=seen.at if wanted else memory.wanted_at,
        short_since=since(memory.short_since, seen.at, holds=wanted > seen.present),
    )
    start = wanted - seen.present if _short_for_long_enough(fleet, seen, memory) else 0
    stop = _surplus(seen, bounds.clamp(_kept(seen, keep_last, memory)))
    if wanted != workers:
        reason = f"{reason} (bounded to {wanted})"
    desired = bounds.clamp(seen.present + start - stop)
    decision = _decision(reading, desired, _explain(seen, reason, wanted, start, stop), start, stop)
    return decision, replace(learn(memory, seen.at, start, stop, seconds(seen.start_cost)), desired=desired)


def want_by_depth(rule: Depth, seen: CompleteReading, memory: Memory) -> tuple[int, str, Memory]:
    """As many workers as there are, a step more, or only those that are busy; with the reason."""
    due = seen.backlog + seen.due_within(seen.startup + OBSERVE_SECONDS)
    empty = since(memory.empty_since, seen.at, holds=due == 0)
    memory = replace(memory, empty_since=empty)
    if empty is None:
        return _step_out(rule, due, seen, memory)
    if seen.at - empty < seconds(settled(rule.empty_for)):
        return seen.present, "none due, but not for long", memory
    return seen.busy, "none due for long enough", memory


def _step_out(rule: Depth, due: int, seen: CompleteReading, memory: Memory) -> tuple[int, str, Memory]:
    add = max((step.add for step in rule.steps if due > step.above), default=0)
    if add == 0:
        return seen.present, f"{due} due, not above the lowest step", memory
    if memory.stepped_at is not None and seen.at - memory.stepped_at < seconds(settled(rule.cooldown)):
        return seen.present, f"{due} due, cooling down after the last step", memory
    return seen.present + add, f"{due} due", replace(memory, stepped_at=seen.at)


class Bounds(Struct, frozen=True):
    """The fewest and the most workers that are allowed at this time."""

    least: int
    most: int

    def clamp(self, count: int) -> int:
        return min(self.most, max(self.least, count))


def _wanted(fleet: Fleet, seen: CompleteReading, memory: Memory) -> tuple[int, str, Memory]:
    """The count that the fleet's rule asks for, before bounds and stabilising waits, and the reason."""
    match fleet.rule:
        case Wait() as rule:
            return policy_wait.want(rule, fleet, seen, memory)
        case Depth() as rule:
            return want_by_depth(rule, seen, memory)


def _keep_seconds(fleet: Fleet, seen: CompleteReading, memory: Memory) -> tuple[float, float]:
    """How long idle workers are kept, and the last of them. A depth rule has its own wait instead."""
    return policy_wait.keep_seconds(fleet, seen, memory) if isinstance(fleet.rule, Wait) else (0.0, 0.0)


def _bounds(fleet: Fleet, seen: CompleteReading) -> Bounds:
    """Min and max of the fleet. Min is raised in warm hours, and to 1 while jobs are due or soon will be."""
    ready = seen.at + seconds(seen.startup)
    warm = (window.workers for window in fleet.keep_warm if window.covers(seen.at) or window.covers(ready))
    needed = 1 if seen.backlog or seen.due_within(seen.startup + OBSERVE_SECONDS) else 0
    return Bounds(max(fleet.min, needed, *warm), fleet.max)


def _short_for_long_enough(fleet: Fleet, seen: CompleteReading, memory: Memory) -> bool:
    """Whether there have been too few workers for at least `out_after`."""
    return memory.short_since is not None and seen.at - memory.short_since >= seconds(settled(fleet.out_after))


def _kept(seen: CompleteReading, keep_last: float, memory: Memory) -> int:
    """The highest count wanted recently; at least one for `keep_last` seconds after any was wanted."""
    rested = timedelta.max if memory.wanted_at is None else seen.at - memory.wanted_at
    return max(memory.peaks[0].workers, 1 if rested < seconds(keep_last) else 0)


def _surplus(seen: CompleteReading, kept: int) -> int:
    """How many idle workers may be stopped. None while jobs that are due later could not be counted."""
    return max(0, min(seen.idle, seen.present - kept)) if seen.sees_ahead else 0


def _explain(seen: CompleteReading, reason: str, wanted: int, start: int, stop: int) -> str:
    if start:
        return f"start {start}: {reason}"
    if stop:
        return f"stop {stop} of {seen.idle} idle: {reason}"
    if wanted > seen.present:
        return f"hold {seen.present}, {wanted} wanted but not for long: {reason}"
    if not seen.sees_ahead:
        return f"hold {seen.present}: jobs due later could not be counted"
    return f"hold {seen.present}: {reason}"


def _decide_blind(fleet: Fleet, reading: FleetReading, memory: Memory, missing: str) -> tuple[FleetDecision, Memory]:
    """Hold while something needed is Unknown; after `blind_for` start up to the fallback's number of workers."""
    memory = replace(memory, blind_since=since(memory.blind_since, reading.at, holds=True), looked_at=reading.at)
    least = max(fleet.min, fleet.fallback if _blind_too_long(fleet, reading, memory) else 0)
    present = reading.present
    before = present if present is not None else memory.desired or 0
    desired = min(fleet.max, max(least, before))
    # Where the present workers are not known, each observation would start more of them, without end.
    start = 0 if present is None else max(0, desired - present)
    reason = f"{'fall back to' if start else 'hold'} {desired}: unknown {missing}"
    return _decision(reading, desired, reason, start), replace(memory, desired=desired)


def _blind_too_long(fleet: Fleet, reading: FleetReading, memory: Memory) -> bool:
    return memory.blind_since is not None and reading.at - memory.blind_since >= seconds(settled(fleet.blind_for))


def _scale_to(count: int, reading: FleetReading, why: str) -> FleetDecision:
    present = reading.present
    if present is None or not known(reading.idle):
        return _decision(reading, count, f"{why} to {count}; hold: its workers cannot be seen")
    start, stop = max(0, count - present), min(reading.idle, max(0, present - count))
    return _decision(reading, count, f"{why} to {count}", start, stop)


def _decision(reading: FleetReading, desired: int, reason: str, start: int = 0, stop: int = 0) -> FleetDecision:
    return FleetDecision(
        at=reading.at, desired=desired, start=start, stop=stop, reason=reason, reading=look_of(reading)
    )
