"""How fast jobs come and how long they take, from the differences between counts. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.fleet_readings import Reading, Unknown
from penstock.model.job import Count
from penstock.model.lifecycle import TERMINAL, State

HALF_SECONDS = 60.0
"""After this much work, what was seen before counts for half."""

FIRST_LOOK = Unknown("not looked twice yet")
PRUNED = Unknown("ended jobs were removed since the last look")
NONE_ENDED = Unknown("no job has been seen to end")

RAN = frozenset({State.SUCCEEDED, State.FAILED})


class JobCounts(Struct, frozen=True):
    """The jobs of a fleet's queues, counted whole at one instant."""

    at: datetime
    queued: int
    running: int
    ended: Mapping[tuple[str, str, State], int]


class Throughput(Struct, frozen=True):
    """What is known of a fleet's jobs by watching them. Service is busy time over ends, both fading as more is seen."""

    before: JobCounts | None = None
    arrival_rate: Reading = FIRST_LOOK
    busy_seconds: float = 0.0
    ends: float = 0.0

    @property
    def service_seconds(self) -> Reading:
        return self.busy_seconds / self.ends if self.ends > 0 else NONE_ENDED


def job_counts_of(at: datetime, counts: Iterable[Count]) -> JobCounts:
    counts = list(counts)
    return JobCounts(
        at,
        sum(one.jobs for one in counts if one.state is State.QUEUED),
        sum(one.jobs for one in counts if one.state is State.RUNNING),
        {(one.queue, one.type, one.state): one.jobs for one in counts if one.state in TERMINAL},
    )


def update(flow: Throughput, now: JobCounts | Unknown) -> Throughput:
    """The flow after one more look. A look that was not whole, and what was pruned, say nothing about rates."""
    if isinstance(now, Unknown):
        return replace(flow, before=None, arrival_rate=now)
    before = flow.before
    span = 0.0 if before is None else (now.at - before.at).total_seconds()
    if before is None or span <= 0:
        return replace(flow, before=now, arrival_rate=flow.arrival_rate if before else FIRST_LOOK)
    if any(now.ended.get(name, 0) < jobs for name, jobs in before.ended.items()):
        return replace(flow, before=now, arrival_rate=PRUNED)
    return replace(_worked(flow, before, now, span), before=now, arrival_rate=_came(before, now) / span)


def _came(before: JobCounts, now: JobCounts) -> int:
    """Jobs that became due. Those waiting out a retry left the line for a while and may make this negative."""
    return max(0, _seen(now) - _seen(before))


def _seen(depths: JobCounts) -> int:
    return depths.queued + depths.running + sum(depths.ended.values())


def _worked(flow: Throughput, before: JobCounts, now: JobCounts, span: float) -> Throughput:
    busy = (before.running + now.running) / 2 * span
    ends = _ran(now) - _ran(before)
    if not busy and not ends:
        return flow
    fading = 0.5 ** (span / HALF_SECONDS)
    return replace(flow, busy_seconds=flow.busy_seconds * fading + busy, ends=flow.ends * fading + ends)


def _ran(depths: JobCounts) -> int:
    return sum(jobs for (_, _, state), jobs in depths.ended.items() if state in RAN)
