"""The wait family: as few workers as let jobs start within the target.

In `t` seconds a slot that is taken starts `t / S` jobs of `S` seconds, and one that is free, or new, one more.
New workers are started when those that are there would not, by a horizon, start all that must have started by then.
The horizon is the target; where a start-up leaves no time for it, a start-up and as much work again.
"""

from math import ceil, exp

from msgspec.structs import replace

from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy_input import LOOK_SECONDS, View, Want
from penstock.model.durations import settled
from penstock.model.fleets import Fleet, Wait

AIM = 0.9
"""The part of the target that is planned for; the rest is for what a plan does not know."""
WORTH = 1.0
"""A worker is started for at least this many times the work that its start-up takes."""
RATE_SECONDS = 300.0
"""How far back the arrival rate looks: long enough that one burst is not taken for a load that lasts."""
LAST_KEEP_SECONDS = 10.0
"""The last idle worker is kept at least this long, however fast workers start."""
TINY = 1e-6


def want(rule: Wait, fleet: Fleet, view: View, memory: Memory) -> tuple[Want, Memory]:
    """Those at work, and as many more as what is due, or soon will be, asks for."""
    memory = replace(memory, arrival_rate=_smoothed(view, memory))
    keep, keep_last = _keep(fleet, view, memory)
    soon = view.startup + LOOK_SECONDS
    due = view.backlog + view.due_within(soon)
    used = max(ceil(view.running / view.capacity), _unseen(view))
    asked = ceil((view.backlog + view.due_within(max(keep, soon))) / view.capacity)
    workers = min(used + asked, view.present + _missing(AIM * settled(rule.target), due, view, memory))
    return Want(workers, _reason(due, view), keep, keep_last), memory


def _keep(fleet: Fleet, view: View, memory: Memory) -> tuple[float, float]:
    """How long idle workers are kept, and the last of them: about as long as starting them again would take."""
    if fleet.in_after is not None:
        return settled(fleet.in_after), settled(fleet.in_after)
    return max(LOOK_SECONDS, memory.keep_part * view.start_cost), max(LAST_KEEP_SECONDS, view.startup)


def _unseen(view: View) -> int:
    """Workers that were at work between looks: jobs shorter than a look come and go without being seen to run."""
    lasted = LOOK_SECONDS if view.service is None else view.service
    return ceil((view.arrival_rate or 0.0) * lasted / view.capacity) if lasted <= LOOK_SECONDS else 0


def _missing(target: float, due: int, view: View, memory: Memory) -> int:
    """How many workers beyond those that are there, so that what is due starts in time."""
    if due == 0:
        return 0
    if view.service is None:
        return _double_until_known(due, view)
    service = max(view.service, TINY)
    span = max(target - view.startup, WORTH * view.startup, TINY)
    horizon = view.startup + span
    coming = (memory.arrival_rate or 0.0) * max(0.0, horizon - target)
    there = view.busy * horizon / service + view.idle * (1 + horizon / service)
    lacking = (due + coming) / view.capacity - there
    return max(0, ceil(lacking / (1 + span / service) - TINY) - view.starting, 0 if view.present else 1)


def _double_until_known(due: int, view: View) -> int:
    """While nobody knows how long a job takes: one worker, then twice as many whenever the last ones are up."""
    if view.starting:
        return 0
    return max(0, min(ceil(due / view.capacity) - view.idle, max(1, view.present)))


def _smoothed(view: View, memory: Memory) -> float | None:
    """The arrival rate, the past counting for less the longer it is gone."""
    if view.arrival_rate is None:
        return memory.arrival_rate
    if memory.arrival_rate is None or memory.looked_at is None:
        return 0.0
    share = 1 - exp(-(view.at - memory.looked_at).total_seconds() / RATE_SECONDS)
    return memory.arrival_rate + share * (view.arrival_rate - memory.arrival_rate)


def _reason(due: int, view: View) -> str:
    each = "nobody knows yet how long one takes" if view.service is None else f"{view.service:.3g} s each"
    return f"{due} due or soon to be ({each}), {view.running} running" if due else f"{view.running} running, none due"
