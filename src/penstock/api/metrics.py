"""Metrics for Prometheus: what the store says, which every API tells alike, and what this process has done.

Of what the store says take `max` over the APIs, never `sum`. A shard that does not answer has no series here, and
`penstock_shard_up` 0: counts never shrink silently.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from penstock.api import process_metrics, traffic
from penstock.api.exposition import EXPOSITION, Family, Sample, labelled, one
from penstock.api.operation import Answer, operation
from penstock.api.process_metrics import process_families
from penstock.api.request import ApiReply, ApiRequest
from penstock.engine import Engine
from penstock.model.declarations import plain_type
from penstock.model.errors import Unavailable
from penstock.model.job import Count
from penstock.model.wire.fleets import FleetItem
from penstock.model.workers import Worker, WorkerState
from penstock.scheduler.tick_plan import wake_at
from penstock.store import Shard

T = TypeVar("T")

LATE_AFTER = timedelta(seconds=5)
LATE_SCHEDULES = 100
"""Most late schedules that are named; more are late, but one is enough to look."""

JOBS = Family("penstock_jobs", "gauge", "Jobs by shard, queue, type and state.")
OLDEST = Family(
    "penstock_queue_oldest_seconds", "gauge", "How long the oldest due job of a queue in a shard has waited."
)
PAUSED = Family("penstock_queue_paused", "gauge", "1 while a queue is paused.")
WORKERS = Family("penstock_workers", "gauge", "Workers by state.")
CAPACITY = Family("penstock_worker_capacity", "gauge", "Jobs that all ready workers can run at once.")
RUNNING = Family("penstock_worker_running", "gauge", "Jobs that ready workers run.")
LATE = Family("penstock_schedules_late", "gauge", "Schedules whose tick is overdue by more than 5 s, at most 100.")
LATE_SECONDS = Family("penstock_schedule_late_seconds", "gauge", "How long the tick of a late schedule is overdue.")
DESIRED = Family("penstock_fleet_desired", "gauge", "Workers that a fleet should have.")
FLEET_WORKERS = Family("penstock_fleet_workers", "gauge", "Workers of a fleet by state.")
DECISIONS = Family(
    "penstock_fleet_decisions_total", "counter", "Decisions to start or stop workers, kept in the store."
)

FAMILIES = (
    JOBS, OLDEST, PAUSED, WORKERS, CAPACITY, RUNNING, LATE, LATE_SECONDS, DESIRED, FLEET_WORKERS, DECISIONS,
    *process_metrics.FAMILIES, *traffic.FAMILIES,
)  # fmt: skip


@operation("GET /metrics", {200: Answer("Metrics.", None, ("text/plain",))})
async def read_metrics(call: ApiRequest) -> ApiReply:
    """Give jobs, queues, workers, schedules, fleets, health and what this process has done as Prometheus metrics."""
    texts = await asyncio.gather(_store_families(call.engine), process_families(call.engine))
    return _reply((*texts[0], *texts[1], *call.traffic.families()))


@operation("GET /metrics", {200: Answer("Metrics.", None, ("text/plain",))})
async def read_own_metrics(call: ApiRequest) -> ApiReply:
    """Give what this process has done as Prometheus metrics, and nothing of what the APIs tell for all."""
    return _reply((*await process_families(call.engine), *call.traffic.families()))


def _reply(families: Iterable[str]) -> ApiReply:
    return ApiReply(200, "".join(families).encode(), EXPOSITION)


async def _store_families(engine: Engine) -> Iterator[str]:
    """What cannot be read now is left out, and the rest told."""
    parts = await asyncio.gather(
        _shard_families(engine), _if_answered(_queues(engine)), _if_answered(_workers(engine)),
        _if_answered(_late(engine)), _if_answered(_fleets(engine)),
    )  # fmt: skip
    return (text for part in parts for text in part or ())


async def _if_answered(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except Unavailable:
        return None


async def _shard_families(engine: Engine) -> Sequence[str]:
    """Each shard by itself: one that does not answer has no sample, instead of a part in a sum."""
    shards = [shard for shard in engine.store.shards() if not shard.unavailable()]
    read = await asyncio.gather(*(_if_answered(_read_shard(shard)) for shard in shards))
    answered = [samples for samples in read if samples is not None]
    return (
        JOBS.text(sample for jobs, _ in answered for sample in jobs),
        OLDEST.text(sample for _, ages in answered for sample in ages),
    )


async def _read_shard(shard: Shard) -> tuple[list[Sample], list[Sample]]:
    """Its jobs, and how long the oldest of each queue has waited: 0 where all run or have ended."""
    counts, due, now = await shard.counts(), await shard.oldest_due(), await shard.now()
    ages = dict.fromkeys((count.queue for count in counts), 0.0)
    ages |= {queue: max(0.0, (now - at).total_seconds()) for queue, at in due.items()}
    number = str(shard.shard)
    return list(_jobs(number, counts)), [("", {"shard": number, "queue": queue}, age) for queue, age in ages.items()]


def _jobs(shard: str, counts: Iterable[Count]) -> Iterator[Sample]:
    """Those that wait for another worker among the others of their type."""
    total: Counter[tuple[str, str, str]] = Counter()
    for count in counts:
        total[count.queue, plain_type(count.type), count.state] += count.jobs
    for (queue, name, state), jobs in total.items():
        yield "", {"shard": shard, "queue": queue, "type": name, "state": state}, jobs


async def _queues(engine: Engine) -> Sequence[str]:
    queues = await engine.queues.list()
    return (PAUSED.text(labelled("queue", {queue.name: queue.paused for queue in queues})),)


async def _workers(engine: Engine) -> Sequence[str]:
    workers = await engine.queues.workers()
    ready = [worker for worker in workers if worker.state is WorkerState.READY]
    return (
        WORKERS.text(labelled("state", _by_state(workers))),
        CAPACITY.text(one(sum(worker.capacity for worker in ready))),
        RUNNING.text(one(sum(worker.running for worker in ready))),
    )


def _by_state(workers: Iterable[Worker]) -> dict[str, float]:
    return {**dict.fromkeys(map(str, WorkerState), 0), **Counter(str(worker.state) for worker in workers)}


async def _late(engine: Engine) -> Sequence[str]:
    now = await engine.store.now()
    due = await engine.store.due_schedules(now - LATE_AFTER, LATE_SCHEDULES)
    awaited = {one.schedule.name: at for one in due if (at := wake_at(one)) is not None}
    late = {name: (now - at).total_seconds() for name, at in awaited.items() if now - at > LATE_AFTER}
    return LATE.text(one(len(late))), LATE_SECONDS.text(labelled("schedule", late))


async def _fleets(engine: Engine) -> Sequence[str]:
    """Of fleets that an autoscaler runs: without a look there is no number, not even 0."""
    seen = [fleet for fleet in await engine.fleets.list() if fleet.latest is not None]
    return (
        DESIRED.text(labelled("fleet", {fleet.name: fleet.desired for fleet in seen if fleet.desired is not None})),
        FLEET_WORKERS.text(_fleet_workers(seen)),
        DECISIONS.text(_decisions(seen)),
    )


def _fleet_workers(fleets: Iterable[FleetItem]) -> Iterator[Sample]:
    for fleet in fleets:
        for state, count in fleet.workers.items():
            yield "", {"fleet": fleet.name, "state": state}, count


def _decisions(fleets: Iterable[FleetItem]) -> Iterator[Sample]:
    for fleet in fleets:
        for action, count in (("start", fleet.starts), ("stop", fleet.stops)):
            yield "", {"fleet": fleet.name, "action": action}, count


OPERATIONS = (read_metrics,)
