"""Decisions that are not the policy's: a count that an operator has set, and a fleet that is left alone. Pure."""

from penstock.autoscaler.policy_view import LOOK_SECONDS
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.fleet_readings import FleetReading, ScalingDecision, known


def manual_decision(standing: EffectiveFleet, reading: FleetReading) -> ScalingDecision | None:
    """What an operator has ordered; None where the policy decides."""
    present = _present(reading)
    if standing.paused:
        return _decision(present or 0, "paused: left as it is")
    if standing.queues == ():
        return _towards(0, present, reading, "serves no queue")
    if standing.count is not None:
        return _towards(standing.count, present, reading, "scaled by hand")
    return None


def _towards(count: int, present: int | None, reading: FleetReading, why: str) -> ScalingDecision:
    if present is None or not known(reading.idle):
        return _decision(count, f"{why} to {count}; hold: its workers cannot be seen")
    start, stop = max(0, count - present), min(reading.idle, max(0, present - count))
    return _decision(count, f"{why} to {count}", start, stop)


def _decision(desired: int, reason: str, start: int = 0, stop: int = 0) -> ScalingDecision:
    return ScalingDecision(desired=desired, start=start, stop=stop, reason=reason, look_again_seconds=LOOK_SECONDS)


def _present(reading: FleetReading) -> int | None:
    counts = (reading.starting, reading.idle, reading.busy)
    return sum(count for count in counts if known(count)) if all(map(known, counts)) else None
