"""What a policy remembers from one observation to the next. Small, and safe to lose: relearned within minutes."""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import Instant

LEAST_KEEP_PART, MOST_KEEP_PART = 0.1, 2.0
REGRETTED = 2.0
UNREGRETTED = 0.8


class Peak(Struct, frozen=True):
    """The number of workers wanted at a time, not exceeded since."""

    at: Instant
    workers: int


class Memory(Struct, frozen=True, kw_only=True):
    """What the policy of a fleet knows of earlier observations. A new one is empty.

    `peaks` falls from first to last: the first is the highest count wanted within the time that idle workers are kept.
    `keep_part` is that time as a multiple of the cost of a start: it grows when workers are started soon after some
    were stopped, and shrinks with every stop that no start followed.
    """

    looked_at: Instant | None = None
    desired: int | None = None
    peaks: tuple[Peak, ...] = ()
    wanted_at: Instant | None = None
    arrival_rate: float | None = None
    short_since: Instant | None = None
    stopped_at: Instant | None = None
    keep_part: float = 1.0
    empty_since: Instant | None = None
    stepped_at: Instant | None = None
    blind_since: Instant | None = None


def remember(peaks: tuple[Peak, ...], now: Peak, keep: timedelta) -> tuple[Peak, ...]:
    """The peaks with one more, without those that are too old or no higher than it."""
    return (*(peak for peak in peaks if peak.workers > now.workers and now.at - peak.at <= keep), now)


def since(began: datetime | None, now: datetime, *, holds: bool) -> datetime | None:
    """Since when something holds without a break; None while it does not."""
    if not holds:
        return None
    return now if began is None else began


def learn(memory: Memory, now: datetime, start: int, stop: int, start_cost: timedelta) -> Memory:
    """Keep idle workers longer if a start soon followed a stop, and less long after each stop."""
    if stop:
        part = max(LEAST_KEEP_PART, memory.keep_part * UNREGRETTED)
        return replace(memory, keep_part=part, stopped_at=now)
    if start and memory.stopped_at is not None and now - memory.stopped_at <= start_cost:
        return replace(memory, keep_part=min(MOST_KEEP_PART, memory.keep_part * REGRETTED), stopped_at=None)
    return memory
