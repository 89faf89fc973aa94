"""What a process has counted since it last told, as another process adds it to its own."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from penstock.engine.meters import JOB_BOUNDS, Histogram, Meters
from penstock.model.job import Loss
from penstock.model.lifecycle import Move, State

Buckets = Annotated[list[int], Meta(min_length=len(JOB_BOUNDS) + 1, max_length=len(JOB_BOUNDS) + 1)]
Durations = dict[str, tuple[Buckets, float]]


class Tally(Struct, frozen=True, omit_defaults=True):
    """Increments of a worker's counters and histograms; a worker makes no other moves than these."""

    moves: list[tuple[str, Move, State, int]] = []
    waits: Durations = {}
    runs: Durations = {}
    refusals: dict[Loss, int] = {}


def take_tally(meters: Meters) -> bytes | None:
    """What was counted since the last time, which then begins at nothing; None if nothing was."""
    tally = Tally(
        moves=[(*key, count) for key, count in meters.moves.items()],
        waits=_durations(meters.waits),
        runs=_durations(meters.runs),
        refusals=dict(meters.refusals),
    )
    for counted in (meters.moves, meters.waits, meters.runs, meters.refusals):
        counted.clear()
    return None if tally == Tally() else msgspec.json.encode(tally)


def add_tally(meters: Meters, told: bytes) -> None:
    """Count what another process has counted; msgspec.MsgspecError if it cannot be read, and then nothing of it."""
    tally = msgspec.json.decode(told, type=Tally)
    for name, move, state, count in tally.moves:
        meters.moves[name, move, state] += count
    meters.refusals.update(tally.refusals)
    for mine, theirs in ((meters.waits, tally.waits), (meters.runs, tally.runs)):
        for name, (counts, seconds) in theirs.items():
            mine.setdefault(name, Histogram()).add_counts(counts, seconds)


def _durations(histograms: Mapping[str, Histogram]) -> Durations:
    return {name: (one.counts, one.seconds) for name, one in histograms.items()}
