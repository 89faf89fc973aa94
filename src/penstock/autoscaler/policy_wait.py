"""The rule `Wait`: as few workers as let jobs start within the target.

In `t` seconds a busy slot starts `t / S` jobs of `S` seconds, and a free or new slot one more.
Workers are started when the present ones would not start, before a horizon, all jobs that must have started by then.
The horizon is the target; where a start-up takes longer than that, twice the start-up time.
"""

from math import ceil, exp

from msgspec.structs import replace

from penstock.autoscaler.memory import Memory
from penstock.model.durations import settled
from penstock.model.fleet_readings import OBSERVE_SECONDS, CompleteReading
from penstock.model.fleets import Fleet, Wait

AIM = 0.9
"""The part of the target that is planned for; the rest is a margin."""
WORTH = 1.0
"""A worker is started for at least this many times the work that could be done during its start-up."""
RATE_SECONDS = 300.0
"""Time constant of the smoothed arrival rate: long enough that one burst does not count as a lasting load."""
LAST_KEEP_SECONDS = 10.0
"""The last idle worker is kept at least this long, however fast workers start."""
TINY = 1e-6


def want(rule: Wait, fleet: Fleet, seen: CompleteReading, memory: Memory) -> tuple[int, str, Memory]:
    """The busy workers and as many more as due jobs, or jobs due soon, need; with the reason."""
    memory = replace(memory, arrival_rate=_smoothed(seen, memory))
    keep, _ = keep_seconds(fleet, seen, memory)
    soon = seen.startup + OBSERVE_SECONDS
    due = seen.backlog + seen.due_within(soon)
    used = max(ceil(seen.running / seen.capacity), _unseen(seen))
    asked = ceil((seen.backlog + seen.due_within(max(keep, soon))) / seen.capacity)
    workers = min(used + asked, seen.present + _missing(AIM * settled(rule.target), due, seen, memory))
    return workers, _explain(due, seen), memory


def keep_seconds(fleet: Fleet, seen: CompleteReading, memory: Memory) -> tuple[float, float]:
    """How long idle workers are kept, and the last of them: about as long as starting them again would take."""
    if fleet.in_after is not None:
        return settled(fleet.in_after), settled(fleet.in_after)
    return max(OBSERVE_SECONDS, memory.keep_part * seen.start_cost), max(LAST_KEEP_SECONDS, seen.startup)


def _unseen(seen: CompleteReading) -> int:
    """Workers that were busy between two observations: jobs shorter than the interval are never seen running."""
    lasted = OBSERVE_SECONDS if seen.service is None else seen.service
    return ceil((seen.arrival_rate or 0.0) * lasted / seen.capacity) if lasted <= OBSERVE_SECONDS else 0


def _missing(target: float, due: int, seen: CompleteReading, memory: Memory) -> int:
    """How many workers beyond the present ones are needed for due jobs to start in time."""
    if due == 0:
        return 0
    if seen.service is None:
        return _double_until_known(due, seen)
    service = max(seen.service, TINY)
    span = max(target - seen.startup, WORTH * seen.startup, TINY)
    horizon = seen.startup + span
    coming = (memory.arrival_rate or 0.0) * max(0.0, horizon - target)
    there = seen.busy * horizon / service + seen.idle * (1 + horizon / service)
    lacking = (due + coming) / seen.capacity - there
    return max(0, ceil(lacking / (1 + span / service) - TINY) - seen.starting, 0 if seen.present else 1)


def _double_until_known(due: int, seen: CompleteReading) -> int:
    """While it is unknown how long a job takes: one worker, then twice as many whenever the last ones are up."""
    if seen.starting:
        return 0
    return max(0, min(ceil(due / seen.capacity) - seen.idle, max(1, seen.present)))


def _smoothed(seen: CompleteReading, memory: Memory) -> float | None:
    """The arrival rate as an exponential moving average."""
    if seen.arrival_rate is None:
        return memory.arrival_rate
    if memory.arrival_rate is None or memory.looked_at is None:
        return 0.0
    share = 1 - exp(-(seen.at - memory.looked_at).total_seconds() / RATE_SECONDS)
    return memory.arrival_rate + share * (seen.arrival_rate - memory.arrival_rate)


def _explain(due: int, seen: CompleteReading) -> str:
    each = "it is not known yet how long one takes" if seen.service is None else f"{seen.service:.3g} s each"
    return f"{due} due or soon to be ({each}), {seen.running} running" if due else f"{seen.running} running, none due"
