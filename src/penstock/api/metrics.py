"""Metrics in Prometheus' text format: what the store says about jobs, and what this process has answered."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from penstock.api.exchange import Call, Reply
from penstock.api.operation import Answer, operation
from penstock.model.fleet_wire import FleetItem
from penstock.model.job import Count
from penstock.model.wire import QueueItem
from penstock.model.workers import Worker

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]


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
        answered.seconds += seconds
        answered.buckets[bisect_left(BOUNDS, seconds)] += 1

    def requests(self) -> Iterator[Sample]:
        for (path, method), answered in self._answered.items():
            for status, count in answered.statuses.items():
                yield "", {"route": path, "method": method, "status": str(status)}, count

    def durations(self) -> Iterator[Sample]:
        for (path, method), answered in self._answered.items():
            labels = {"route": path, "method": method}
            for bound, below in zip((*BOUNDS, "+Inf"), accumulate(answered.buckets), strict=True):
                yield "_bucket", {**labels, "le": str(bound)}, below
            yield "_sum", labels, answered.seconds
            yield "_count", labels, sum(answered.buckets)


class _Answered:
    """What one route has answered to one method."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)


@operation("GET /metrics", {200: Answer("Metrics.", None, ("text/plain",))})
async def read_metrics(call: Call) -> Reply:
    """Give jobs, queues, workers, fleets and requests as Prometheus metrics."""
    engine = call.engine
    families = (
        _family("penstock_jobs", "gauge", "Jobs by queue, type and state.", _jobs(await engine.queues.counts())),
        *_queues(await engine.queues.list()),
        _family("penstock_workers", "gauge", "Workers by state.", _workers(await engine.queues.workers())),
        *_fleets(await engine.fleets.list()),
        _family(
            "penstock_http_requests_total", "counter", "Requests answered by this process.", call.traffic.requests()
        ),
        _family("penstock_http_seconds", "histogram", "How long answers took.", call.traffic.durations()),
    )
    return Reply(200, "".join(families).encode(), EXPOSITION)


def _jobs(counts: Iterable[Count]) -> Iterator[Sample]:
    for count in counts:
        yield "", {"queue": count.queue, "type": count.type, "state": count.state}, count.jobs


def _queues(queues: list[QueueItem]) -> tuple[str, str]:
    ages = [("", {"queue": queue.name}, queue.oldest_seconds or 0.0) for queue in queues]
    pauses = [("", {"queue": queue.name}, float(queue.paused)) for queue in queues]
    return (
        _family("penstock_queue_oldest_seconds", "gauge", "How long the oldest due job has waited.", ages),
        _family("penstock_queue_paused", "gauge", "1 while a queue is paused.", pauses),
    )


def _workers(workers: Iterable[Worker]) -> Iterator[Sample]:
    for state, count in Counter(worker.state for worker in workers).items():
        yield "", {"state": state}, count


def _fleets(fleets: Iterable[FleetItem]) -> tuple[str, ...]:
    """Of fleets that an autoscaler has looked at: without a look there is no number, not even 0."""
    seen = [(fleet, {"fleet": fleet.name}) for fleet in fleets if fleet.latest is not None]
    desired = [("", labels, float(fleet.desired or 0)) for fleet, labels in seen]
    workers = [
        ("", {**labels, "state": state}, float(count))
        for fleet, labels in seen
        for state, count in fleet.workers.items()
    ]
    decisions = [
        ("", {**labels, "action": action}, float(count))
        for fleet, labels in seen
        for action, count in (("start", fleet.starts), ("stop", fleet.stops))
    ]
    return (
        _family("penstock_fleet_desired", "gauge", "Workers that a fleet should have.", desired),
        _family("penstock_fleet_workers", "gauge", "Workers of a fleet by state.", workers),
        _family("penstock_fleet_decisions_total", "counter", "Decisions to start or stop workers.", decisions),
    )


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    lines = [f"{name}{suffix}{{{_labels(labels)}}} {value:.12g}\n" for suffix, labels, value in samples]
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{''.join(lines)}"


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


OPERATIONS = (read_metrics,)
