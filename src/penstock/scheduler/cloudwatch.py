"""Metrics for CloudWatch: the backlog and the oldest wait of each queue, as lines in the embedded metric format.

CloudWatch makes metrics of such lines wherever it gets a process's standard output: no call to AWS, no rights.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from penstock.engine import Engine
from penstock.model.clock import to_millis
from penstock.model.errors import Unavailable
from penstock.model.fleet_readings import Unknown
from penstock.model.lifecycle import State

NAMESPACE: Final = "Penstock"
DIMENSION: Final = "Queue"
INTERVAL: Final = timedelta(minutes=1)
UNITS: Final = {"Backlog": "Count", "Running": "Count", "OldestSeconds": "Seconds"}

WriteLine = Callable[[str], object]


class QueueGauge(Struct, frozen=True):
    """One queue at one instant: jobs that wait to be claimed, jobs that run, and for how long the oldest has waited."""

    queue: str
    backlog: int = 0
    running: int = 0
    oldest_seconds: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.backlog or self.running)


def metric_line(gauge: QueueGauge, at: datetime) -> str:
    """The line that CloudWatch makes the metrics of one queue of."""
    metrics = [{"Name": name, "Unit": unit} for name, unit in UNITS.items()]
    directive = {"Namespace": NAMESPACE, "Dimensions": [[DIMENSION]], "Metrics": metrics}
    values = {"Backlog": gauge.backlog, "Running": gauge.running, "OldestSeconds": round(gauge.oldest_seconds, 3)}
    line = {"_aws": {"Timestamp": to_millis(at), "CloudWatchMetrics": [directive]}, DIMENSION: gauge.queue, **values}
    return msgspec.json.encode(line).decode()


async def read_gauges(engine: Engine) -> Sequence[QueueGauge] | Unknown:
    """Every queue that has jobs or a declared type, by name. Unknown while a shard does not answer: its jobs count."""
    try:
        return await _read_gauges(engine)
    except Unavailable as error:
        return Unknown(error.message)


async def _read_gauges(engine: Engine) -> Sequence[QueueGauge]:
    # Each shard by itself: counts over all shards leave out those that do not answer.
    jobs: Counter[tuple[str, State]] = Counter()
    oldest: dict[str, datetime] = {}
    for shard in engine.store.shards():
        for count in await shard.counts():
            jobs[count.queue, count.state] += count.jobs
        for queue, due in (await shard.oldest_due()).items():
            oldest[queue] = min(due, oldest.get(queue, due))
    declared = {one.queue for one in (await engine.catalog.read()).types.values()}
    now = await engine.store.now()
    return [
        QueueGauge(
            queue=queue,
            backlog=jobs[queue, State.QUEUED],
            running=jobs[queue, State.RUNNING],
            oldest_seconds=max(0.0, (now - oldest.get(queue, now)).total_seconds()),
        )
        for queue in sorted(declared | {queue for queue, _ in jobs})
    ]


class QueueMetrics:
    """A service: one step writes a line per queue. A queue that is not there any more is told to be empty, once."""

    def __init__(self, engine: Engine, write: WriteLine | None = None) -> None:
        self._engine = engine
        self._write = write or _write_line
        self._told: frozenset[str] = frozenset()

    async def step(self) -> timedelta:
        self.tell(await read_gauges(self._engine))
        return INTERVAL

    def tell(self, gauges: Sequence[QueueGauge] | Unknown) -> None:
        """Write the lines of a reading; none for one that is Unknown, so that no alarm takes it for an idle queue."""
        if isinstance(gauges, Unknown):
            return
        names = frozenset(one.queue for one in gauges)
        gone = [QueueGauge(name) for name in sorted(self._told - names)]
        now = self._engine.clock.now()
        for gauge in (*gauges, *gone):
            self._write(metric_line(gauge, now))
        self._told = names


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
