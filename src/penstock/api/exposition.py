"""Metrics in Prometheus' text format: families of samples, and the counts of the requests this process answered."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.engine.meters import Histogram

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[str, Labels, float]
"""What follows the family's name, the labels, and the value."""


class Family(Struct, frozen=True):
    """The samples of one name: what they measure, in one sentence."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str

    def text(self, samples: Iterable[Sample]) -> str:
        """Head and lines; nothing at all without samples."""
        lines = [f"{self.name}{suffix}{_labels(labels)} {value:.16g}\n" for suffix, labels, value in samples]
        head = f"# HELP {self.name} {self.about}\n# TYPE {self.name} {self.kind}\n"
        return f"{head}{''.join(lines)}" if lines else ""


def one(value: float) -> Iterable[Sample]:
    """The only sample of a family without labels."""
    return (("", {}, value),)


def labelled(name: str, values: Mapping[str, float]) -> Iterator[Sample]:
    """A sample for each value of one label."""
    for label, value in values.items():
        yield "", {name: label}, value


def histogram(labels: Labels, measured: Histogram) -> Iterator[Sample]:
    """The samples of one histogram."""
    for bound, count in measured.buckets():
        yield "_bucket", {**labels, "le": bound}, count
    yield "_sum", labels, measured.seconds
    yield "_count", labels, sum(measured.counts)


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)

REQUESTS = Family("penstock_http_requests_total", "counter", "Requests answered; status 0: the client hung up.")
DURATIONS = Family(
    "penstock_http_seconds", "histogram", "How long answers took, waiting for work or for a job included."
)

HTTP_FAMILIES = (REQUESTS, DURATIONS)


class Traffic:
    """What this process has answered since it started, by route. Bounded: routes × methods × statuses."""

    def __init__(self) -> None:
        self._answered: dict[tuple[str, str], _Answered] = {}

    def note(self, path: str | None, method: str, status: int, seconds: float | None) -> None:
        """Count one request. `path` is the route's template, None where none fits; status 0: the client hung up.

        `seconds` None: a stream, which takes as long as its client wants.
        """
        # Clients may send any method and path; a series for each would fill the memory.
        route = (path or "unknown", method if method in METHODS else "other")
        answered = self._answered.get(route)
        if answered is None:
            answered = self._answered[route] = _Answered()
        answered.statuses[status] = answered.statuses.get(status, 0) + 1
        if seconds is None:
            return
        measured = answered.durations
        measured.counts[bisect_left(BOUNDS, seconds)] += 1
        measured.seconds += seconds

    def families(self) -> Iterator[str]:
        yield REQUESTS.text(self.requests())
        yield DURATIONS.text(self.durations())

    def requests(self) -> Iterator[Sample]:
        for (path, method), answered in self._answered.items():
            for status, count in answered.statuses.items():
                yield "", {"route": path, "method": method, "status": str(status)}, count

    def durations(self) -> Iterator[Sample]:
        for (path, method), answered in self._answered.items():
            yield from histogram({"route": path, "method": method}, answered.durations)


class _Answered:
    """What one route has answered to one method."""

    __slots__ = ("durations", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.durations = Histogram(BOUNDS)
