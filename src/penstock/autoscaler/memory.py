"""What a policy must remember from one look to the next. Small, and safe to lose: it is regained within minutes."""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import Instant

LEAST_KEEP_PART, MOST_KEEP_PART = 0.1, 2.0
REGRETTED = 2.0
UNREGRETTED = 0.8


class Peak(Struct, frozen=True):
    """So many workers were wanted at a time, and never more of them since."""

    at: Instant
    workers: int


class Memory(Struct, frozen=True, kw_only=True):
    """A fleet's past as its policy needs it. A new one knows nothing.

    `peaks` falls from first to last: the first is the most that was wanted within the time that idle workers are kept.
    `keep_part` is that time as a part of what a start costs: it grows when workers are started soon after some were
    stopped, and shrinks with every stop that was not regretted.
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
    """Peaks with one more look, without those that are over or were overtaken."""
    return (*(peak for peak in peaks if peak.workers > now.workers and now.at - peak.at <= keep), now)


def since(began: datetime | None, now: datetime, *, holds: bool) -> datetime | None:
    """Since when something holds without a break; None while it does not."""
    if not holds:
        return None
    return now if began is None else began


def learn(memory: Memory, now: datetime, start: int, stop: int, start_cost: timedelta) -> Memory:
    """Keep idle workers longer after a stop that was regretted, and less long after one that was not."""
    if stop:
        part = max(LEAST_KEEP_PART, memory.keep_part * UNREGRETTED)
        return replace(memory, keep_part=part, stopped_at=now)
    if start and memory.stopped_at is not None and now - memory.stopped_at <= start_cost:
        return replace(memory, keep_part=min(MOST_KEEP_PART, memory.keep_part * REGRETTED), stopped_at=None)
    return memory
