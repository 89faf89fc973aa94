"""What this process has answered over HTTP."""

from bisect import bisect_left
from collections.abc import Iterator

from penstock.api.exposition import Family, Sample, histogram
from penstock.engine.meters import Histogram

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)

REQUESTS = Family("penstock_http_requests_total", "counter", "Requests answered; status 0: the client hung up.")
DURATIONS = Family(
    "penstock_http_seconds", "histogram", "How long answers took, waiting for work or for a job included."
)

FAMILIES = (REQUESTS, DURATIONS)


class Traffic:
    """What this process has answered since it started, by route. Bounded: routes × methods × statuses."""

    def __init__(self) -> None:
        self._answered: dict[tuple[str, str], _Answered] = {}

    def note(self, path: str | None, method: str, status: int, seconds: float) -> None:
        """Count one request. `path` is the route's template, None where none fits; status 0: the client hung up."""
        # Anyone may invent methods and paths; a series for each would fill the memory.
        route = (path or "unknown", method if method in METHODS else "other")
        answered = self._answered.get(route)
        if answered is None:
            answered = self._answered[route] = _Answered()
        answered.statuses[status] = answered.statuses.get(status, 0) + 1
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
