"""Traces: jobs by when they become due and how long they run. Made by a pattern, or read from a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from penstock.model.errors import Invalid

Length = Annotated[float, Meta(ge=0)]


class TracedJob(Struct, frozen=True, omit_defaults=True):
    """A line of a trace: due `at` seconds from any origin, runs for `seconds`; `known` that long before it is due."""

    at: float
    seconds: Length
    known: Length = 0.0


class Trace(Struct, frozen=True):
    """Jobs in the order they become due, the first of a file at 0."""

    name: str
    jobs: tuple[TracedJob, ...]

    @property
    def work_seconds(self) -> float:
        return sum(job.seconds for job in self.jobs)

    @property
    def ends(self) -> float:
        """When the last job becomes due."""
        return self.jobs[-1].at


def trace_of(name: str, jobs: Iterable[TracedJob]) -> Trace:
    """A trace, put in order. Invalid when it is empty."""
    ordered = tuple(sorted(jobs, key=lambda job: job.at))
    if not ordered:
        raise Invalid(f"trace {name!r} has no jobs; give at least one line such as {{'at': 0, 'seconds': 1.5}}")
    return Trace(name, ordered)


def read_trace(path: Path) -> Trace:
    """A trace from JSON lines, each with `at` and `seconds`. Invalid names the line that is none."""
    decoder = msgspec.json.Decoder(TracedJob)
    jobs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                jobs.append(decoder.decode(line))
            except msgspec.DecodeError as wrong:
                raise Invalid(f"{path}, line {number}: {wrong}; write it as {{'at': 12.5, 'seconds': 1.5}}") from None
    first = min((job.at for job in jobs), default=0.0)
    return trace_of(path.stem, (TracedJob(job.at - first, job.seconds, job.known) for job in jobs))
