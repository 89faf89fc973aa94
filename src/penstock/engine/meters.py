"""Counters and histograms of one process. Every process counts the moves that it made, so that sums are right.

Moves are counted in batches, as they become durable. A `Tally` carries the counts of a worker to another process.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penstock.model.ids import ShardId
from penstock.model.job import Claim, Loss
from penstock.model.lifecycle import Event, Move, State
from penstock.model.wire.jobs import Refusal

JOB_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds, from a short wait in an idle system to a long job."""

MoveKey: TypeAlias = tuple[str, Move, State]

_MOVE_KEY: Callable[[Event], MoveKey] = attrgetter("type", "move", "after")


class Histogram:
    """A histogram of durations: a count for each upper bound, and one beyond the last."""

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: Sequence[float] = JOB_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def add(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same bounds."""
        self.add_counts(other.counts, other.seconds)

    def add_counts(self, counts: Sequence[int], seconds: float) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, counts, strict=True)]
        self.seconds += seconds

    def buckets(self) -> Iterable[tuple[str, int]]:
        """Each bound as Prometheus writes it, and the cumulative count."""
        return zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True)


class Meters:
    """The counters and histograms of one process. Reading them changes nothing."""

    def __init__(self) -> None:
        self.submitted = 0
        self.moves: Counter[MoveKey] = Counter()
        self.waits: dict[str, Histogram] = {}
        self.runs: dict[str, Histogram] = {}
        self.refusals: Counter[Loss] = Counter()
        self.ticks_as_jobs = 0
        self.ticks_skipped = 0
        self.services: dict[str, Beat] = {}
        self.connections: Callable[[], int] = lambda: 0
        self.connections_max = 0
        self.streams = 0
        self.tail_lags: dict[ShardId, float] = {}

    def count_moves(self, events: Sequence[Event]) -> None:
        """Count moves that have become durable."""
        self.moves.update(map(_MOVE_KEY, events))
        _note_all(self.runs, [(event.type, event.ran_seconds) for event in events if event.ran_seconds is not None])

    def note_run(self, type_name: str, seconds: float) -> None:
        """Count one attempt that ended."""
        _note_all(self.runs, ((type_name, seconds),))

    def note_claims(self, claims: Iterable[Claim]) -> None:
        """Count how long claimed jobs had waited."""
        _note_all(self.waits, [(claim.type, claim.waited_seconds) for claim in claims])

    def note_refusals(self, refused: Iterable[Refusal]) -> None:
        """Count settles and releases with a fence that no longer holds."""
        self.refusals.update([one.loss for one in refused])

    def note_ticks(self, *, jobs: int, skips: int) -> None:
        """Count ticks that became jobs, and recorded skips."""
        self.ticks_as_jobs += jobs
        self.ticks_skipped += skips

    def note_step(self, service: str, at: float, *, failed: bool = False) -> None:
        """Note that a service finished a step, at a time in seconds since the epoch."""
        beat = self.services.get(service)
        if beat is None:
            beat = self.services[service] = Beat()
        beat.at = at
        beat.failures += failed


class Beat:
    """When a service last finished a step, and how many of its steps failed."""

    __slots__ = ("at", "failures")

    def __init__(self) -> None:
        self.at = 0.0
        self.failures = 0


def _note_all(histograms: dict[str, Histogram], measured: Iterable[tuple[str, float]]) -> None:
    """Count seconds by type. Neighbours are mostly of one type, so its histogram is looked up once."""
    name, found = None, None
    for type_name, seconds in measured:
        if found is None or type_name != name:
            name, found = type_name, histograms.setdefault(type_name, Histogram())
        found.counts[bisect_left(JOB_BOUNDS, seconds)] += 1
        found.seconds += seconds


Buckets = Annotated[list[int], Meta(min_length=len(JOB_BOUNDS) + 1, max_length=len(JOB_BOUNDS) + 1)]
Durations = dict[str, tuple[Buckets, float]]


class Tally(Struct, frozen=True, omit_defaults=True):
    """Increments of a worker's counters and histograms."""

    moves: list[tuple[str, Move, State, int]] = []
    waits: Durations = {}
    runs: Durations = {}
    refusals: dict[Loss, int] = {}


def take_tally(meters: Meters) -> bytes | None:
    """The counts since the last call, encoded, and reset to zero; None if there are none."""
    tally = Tally(
        moves=[(*key, count) for key, count in meters.moves.items()],
        waits=_durations(meters.waits),
        runs=_durations(meters.runs),
        refusals=dict(meters.refusals),
    )
    for counted in (meters.moves, meters.waits, meters.runs, meters.refusals):
        counted.clear()
    return None if tally == Tally() else msgspec.json.encode(tally)


def add_tally(meters: Meters, encoded: bytes) -> None:
    """Add the counts of another process; msgspec.MsgspecError, and nothing added, if they cannot be read."""
    tally = msgspec.json.decode(encoded, type=Tally)
    for name, move, state, count in tally.moves:
        meters.moves[name, move, state] += count
    meters.refusals.update(tally.refusals)
    for mine, theirs in ((meters.waits, tally.waits), (meters.runs, tally.runs)):
        for name, (counts, seconds) in theirs.items():
            mine.setdefault(name, Histogram()).add_counts(counts, seconds)


def _durations(histograms: Mapping[str, Histogram]) -> Durations:
    return {name: (one.counts, one.seconds) for name, one in histograms.items()}
