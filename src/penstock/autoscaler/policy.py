"""How many workers a fleet should have: from a reading, and what is remembered, to a decision with its reason. Pure."""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler import policy_wait
from penstock.autoscaler.memory import Memory, Peak, learn, remember, since
from penstock.autoscaler.policy_input import LOOK_SECONDS, View, Want, view_of
from penstock.model.clock import seconds
from penstock.model.durations import settled
from penstock.model.fleet_readings import FleetReading, ScalingDecision, known
from penstock.model.fleets import Depth, Fleet, Wait


def want_by_depth(rule: Depth, view: View, memory: Memory) -> tuple[Want, Memory]:
    """As many as there are, a step more, or only those that are at work."""
    due = view.backlog + view.due_within(view.startup + LOOK_SECONDS)
    empty = since(memory.empty_since, view.at, holds=due == 0)
    memory = replace(memory, empty_since=empty)
    if empty is None:
        return _out(rule, due, view, memory)
    if view.at - empty < seconds(settled(rule.empty_for)):
        return Want(view.present, "none due, but not for long"), memory
    return Want(view.busy, "none due for long enough"), memory


def _out(rule: Depth, due: int, view: View, memory: Memory) -> tuple[Want, Memory]:
    add = max((step.add for step in rule.steps if due > step.above), default=0)
    if add == 0:
        return Want(view.present, f"{due} due, not above the lowest step"), memory
    if memory.stepped_at is not None and view.at - memory.stepped_at < seconds(settled(rule.cooldown)):
        return Want(view.present, f"{due} due, cooling down after the last step"), memory
    return Want(view.present + add, f"{due} due"), replace(memory, stepped_at=view.at)


class Bounds(Struct, frozen=True):
    """The fewest and the most workers there may be at this time."""

    least: int
    most: int

    def hold(self, count: int) -> int:
        return min(self.most, max(self.least, count))


def decide(fleet: Fleet, reading: FleetReading, memory: Memory) -> tuple[ScalingDecision, Memory]:
    """What to do with a fleet now, and what to remember until the next look.

    The desired count is never below min nor above max, and never zero while there is due work, or work that will be due
    before a worker could be up. No more workers are stopped than are idle. What could not be observed changes nothing.
    """
    view = view_of(fleet, reading)
    if not isinstance(view, View):
        return _blind(fleet, reading, memory, view)
    want, memory = _want(fleet, view, memory)
    return _act(fleet, view, want, replace(memory, looked_at=view.at, blind_since=None))


def _want(fleet: Fleet, view: View, memory: Memory) -> tuple[Want, Memory]:
    match fleet.rule:
        case Wait() as rule:
            return policy_wait.want(rule, fleet, view, memory)
        case Depth() as rule:
            return want_by_depth(rule, view, memory)


def _act(fleet: Fleet, view: View, want: Want, memory: Memory) -> tuple[ScalingDecision, Memory]:
    """Turn what is wanted into starts or stops, within bounds and after the stabilising waits."""
    bounds = _bounds(fleet, view)
    wanted = bounds.hold(want.workers)
    memory = replace(
        memory,
        peaks=remember(memory.peaks, Peak(view.at, wanted), seconds(want.keep_seconds)),
        wanted_at=view.at if wanted else memory.wanted_at,
        short_since=since(memory.short_since, view.at, holds=wanted > view.present),
    )
    start = wanted - view.present if _is_ripe(fleet, view, memory) else 0
    stop = _surplus(view, bounds.hold(_kept(view, want, memory)))
    decision = ScalingDecision(
        desired=bounds.hold(view.present + start - stop),
        start=start,
        stop=stop,
        reason=_reason(view, want, wanted, start, stop),
        look_again_seconds=LOOK_SECONDS,
    )
    memory = learn(memory, view.at, start, stop, seconds(view.start_cost))
    return decision, replace(memory, desired=decision.desired)


def _bounds(fleet: Fleet, view: View) -> Bounds:
    """Min and max; min is raised in warm hours, and while there is work that a fleet at zero would leave lying."""
    ready = view.at + seconds(view.startup)
    warm = (window.workers for window in fleet.keep_warm if window.covers(view.at) or window.covers(ready))
    needed = 1 if view.backlog or view.due_within(view.startup + LOOK_SECONDS) else 0
    return Bounds(max(fleet.min, needed, *warm), fleet.max)


def _is_ripe(fleet: Fleet, view: View, memory: Memory) -> bool:
    """Whether there are too few workers, and have been for as long as that must last."""
    return memory.short_since is not None and view.at - memory.short_since >= seconds(settled(fleet.out_after))


def _kept(view: View, want: Want, memory: Memory) -> int:
    """The most that was wanted lately; at least one, while the last worker is kept."""
    rested = timedelta.max if memory.wanted_at is None else view.at - memory.wanted_at
    return max(memory.peaks[0].workers, 1 if rested < seconds(want.keep_last_seconds) else 0)


def _surplus(view: View, kept: int) -> int:
    """How many idle workers may go. None while jobs that are due later could not be counted."""
    return max(0, min(view.idle, view.present - kept)) if view.sees_ahead else 0


def _reason(view: View, want: Want, wanted: int, start: int, stop: int) -> str:
    bound = f" (bounded to {wanted})" if wanted != want.workers else ""
    if start:
        return f"start {start}: {want.reason}{bound}"
    if stop:
        return f"stop {stop} of {view.idle} idle: {want.reason}{bound}"
    if wanted > view.present:
        return f"hold {view.present}, {wanted} wanted but not for long: {want.reason}{bound}"
    if not view.sees_ahead:
        return f"hold {view.present}: jobs due later could not be counted"
    return f"hold {view.present}: {want.reason}{bound}"


def _blind(fleet: Fleet, reading: FleetReading, memory: Memory, missing: str) -> tuple[ScalingDecision, Memory]:
    """Hold while something is Unknown; after a while see to it that there are at least the fallback's workers."""
    memory = replace(memory, blind_since=since(memory.blind_since, reading.at, holds=True), looked_at=reading.at)
    least = max(fleet.min, fleet.fallback if _blind_too_long(fleet, reading, memory) else 0)
    there = _present(reading)
    before = there if there is not None else memory.desired or 0
    desired = min(fleet.max, max(least, before))
    # Without knowing how many there are, one more start at each look would have no end.
    start = 0 if there is None else max(0, desired - there)
    reason = f"{'fall back to' if start else 'hold'} {desired}: unknown {missing}"
    decision = ScalingDecision(desired=desired, start=start, reason=reason, look_again_seconds=LOOK_SECONDS)
    return decision, replace(memory, desired=desired)


def _blind_too_long(fleet: Fleet, reading: FleetReading, memory: Memory) -> bool:
    return memory.blind_since is not None and reading.at - memory.blind_since >= seconds(settled(fleet.blind_for))


def _present(reading: FleetReading) -> int | None:
    counts = (reading.starting, reading.idle, reading.busy)
    return sum(count for count in counts if known(count)) if all(map(known, counts)) else None
