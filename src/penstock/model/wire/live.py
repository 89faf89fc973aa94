"""What pages are told about the whole system while they are looked at."""

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.lifecycle import State
from penstock.model.wire.history import HistoryStep
from penstock.model.wire.jobs import QueueItem


class LiveFleet(Struct, frozen=True, kw_only=True):
    """A fleet now: its workers by state, how many are wanted, within which bounds, and why."""

    name: str
    min: int
    max: int
    paused: bool
    count: int | None
    desired: int | None
    workers: dict[str, int]
    reason: str | None
    trouble: str | None


class LiveDigest(Struct, frozen=True, kw_only=True):
    """The system at one instant: all jobs by state, the busiest queues, workers by state, and every fleet.

    `queues` are at most a hundred, those with the most waiting jobs first; `more_queues` says how many are left out.
    `recent` are the latest steps of the history, of all jobs; null where none is kept. What the `missing_shards` have
    is not in it.
    """

    at: Instant
    jobs: dict[State, int]
    oldest_seconds: float | None
    queues: tuple[QueueItem, ...]
    more_queues: int
    workers: dict[str, int]
    capacity: int
    fleets: tuple[LiveFleet, ...]
    recent: tuple[HistoryStep, ...] | None
    missing_shards: tuple[int, ...] = ()
