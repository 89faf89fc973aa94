"""The history on the wire."""

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.ids import ShardId


class Percentiles(Struct, frozen=True):
    """Seconds below which half, 95 % and 99 % of the times lie; exact to the power of two that they fall into."""

    p50: float
    p95: float
    p99: float


class HistoryStep(Struct, frozen=True, kw_only=True):
    """What happened in one step that begins `at`, and how many jobs there were at its end.

    `errored` counts attempts, all others jobs. `wait` is from due to start, `run` from start to settle.
    """

    at: Instant
    arrived: int
    started: int
    succeeded: int
    errored: int
    failed: int
    cancelled: int
    expired: int
    lost: int
    waiting: int
    running: int
    scheduled: int
    wait: Percentiles | None = None
    run: Percentiles | None = None


class HistoryReport(Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """Steps in order. What the `missing_shards` did and have is not in it."""

    since: Instant
    until: Instant
    step_seconds: float
    queue: str | None = None
    type: str | None = None
    steps: tuple[HistoryStep, ...] = ()
    missing_shards: tuple[ShardId, ...] = ()
