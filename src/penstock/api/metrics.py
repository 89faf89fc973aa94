"""Metrics for Prometheus: what the store says, which every API tells alike, and what this process has done.

Of what the store says take `max` over the APIs, never `sum`. A shard that does not answer has no series here, and
`penstock_shard_up` 0: counts never shrink silently. Every process has counters of its own, so `sum` over processes is
right for them; of the health gauges take `min`.
"""

import asyncio
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from penstock import __version__
from penstock.api.exposition import EXPOSITION, HTTP_FAMILIES, Family, Sample, histogram, labelled, one
from penstock.api.operation import Answer, operation
from penstock.api.relay_metrics import RELAY_FAMILIES, read_relays
from penstock.api.request import ApiReply, ApiRequest
from penstock.engine import Engine
from penstock.engine.meters import Histogram, Meters
from penstock.model.declarations import plain_type
from penstock.model.errors import PenstockError, Unavailable
from penstock.model.job import Count
from penstock.model.lifecycle import TERMINAL, Move, State
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

PROBE_WITHIN = timedelta(seconds=2)
PROBED_KEY = "health/metrics"
"""An object that is never there: to be told so takes an object store that answers."""

SUBMITTED = Family("penstock_jobs_submitted_total", "counter", "Jobs that clients submitted here.")
ENDED = Family("penstock_jobs_ended_total", "counter", "Jobs that ended by a move made here, by type and outcome.")
RETRIES = Family("penstock_retries_total", "counter", "Attempts that errored and are tried again, by type.")
LEASES_LOST = Family("penstock_leases_lost_total", "counter", "Leases that ran out and were taken back here, by type.")
RELEASES = Family("penstock_leases_released_total", "counter", "Leases that workers gave back unharmed, by type.")
REFUSALS = Family("penstock_settles_refused_total", "counter", "Outcomes refused under an old fence, by reason.")
WAITS = Family("penstock_job_wait_seconds", "histogram", "How long jobs were due before they were claimed, by type.")
RUNS = Family("penstock_job_run_seconds", "histogram", "How long attempts ran, from claim to settle, by type.")
TICKS = Family("penstock_ticks_total", "counter", "Ticks of schedules decided here: each became a job or a skip.")
STEPS = Family("penstock_service_step_timestamp_seconds", "gauge", "When a service of this process last ended a step.")
FAILURES = Family("penstock_service_failures_total", "counter", "Steps of a service that failed.")
SHARD_UP = Family("penstock_shard_up", "gauge", "1 if this process reaches the shard, 0 if not.")
SHARD_CALLS = Family("penstock_shard_calls_total", "counter", "Calls of this process to a shard.")
SHARD_FAILURES = Family("penstock_shard_failures_total", "counter", "Calls and probes that a shard did not answer.")
BROKER_UP = Family("penstock_broker_up", "gauge", "1 if this process reaches the broker, 0 if not.")
OBJECTS_UP = Family("penstock_objects_up", "gauge", "1 if this process reaches the object store, 0 if not.")
CONNECTIONS = Family("penstock_http_connections", "gauge", "Open connections of this process.")
CONNECTIONS_MAX = Family("penstock_http_connections_max", "gauge", "Most connections that this process takes.")
STREAMS = Family("penstock_event_streams", "gauge", "Open streams of events of this process.")
TAIL_LAG = Family(
    "penstock_event_lag_seconds", "gauge", "How old the last move of a shard was when its streams were given it."
)
BUILD = Family("penstock_build_info", "gauge", "1, with the version of this process.")
CPU = Family("process_cpu_seconds_total", "counter", "User and system CPU time of this process.")
MEMORY = Family("process_resident_memory_bytes", "gauge", "Resident memory of this process.")
FILES = Family("process_open_fds", "gauge", "Open files of this process.")
FILES_MAX = Family("process_max_fds", "gauge", "Most files that this process may open.")

PROCESS_FAMILIES = (
    SUBMITTED, ENDED, RETRIES, LEASES_LOST, RELEASES, REFUSALS, WAITS, RUNS, TICKS, STEPS, FAILURES, SHARD_UP,
    SHARD_CALLS, SHARD_FAILURES, BROKER_UP, OBJECTS_UP, CONNECTIONS, CONNECTIONS_MAX, STREAMS, TAIL_LAG,
    BUILD, CPU, MEMORY, FILES, FILES_MAX,
)  # fmt: skip

FAMILIES = (
    JOBS, OLDEST, PAUSED, WORKERS, CAPACITY, RUNNING, LATE, LATE_SECONDS, DESIRED, FLEET_WORKERS, DECISIONS,
    *RELAY_FAMILIES, *PROCESS_FAMILIES, *HTTP_FAMILIES,
)  # fmt: skip


@operation("GET /metrics", {200: Answer("Metrics.", None, ("text/plain",))})
async def read_metrics(call: ApiRequest) -> ApiReply:
    """Give jobs, queues, workers, schedules, fleets, health and what this process has done as Prometheus metrics."""
    texts = await asyncio.gather(_read_store(call.engine), _read_process(call.engine))
    return _reply((*texts[0], *texts[1], *call.traffic.families()))


@operation("GET /metrics", {200: Answer("Metrics.", None, ("text/plain",))})
async def read_own_metrics(call: ApiRequest) -> ApiReply:
    """Give what this process has done as Prometheus metrics, and nothing of what the APIs tell for all."""
    return _reply((*await _read_process(call.engine), *call.traffic.families()))


def _reply(families: Iterable[str]) -> ApiReply:
    return ApiReply(200, "".join(families).encode(), EXPOSITION)


async def _read_store(engine: Engine) -> Iterator[str]:
    """What cannot be read now is left out, and the rest told."""
    parts = await asyncio.gather(
        _read_shards(engine), _read_if_available(_read_queues(engine)), _read_if_available(_read_workers(engine)),
        _read_if_available(_read_late_schedules(engine)), _read_if_available(_read_fleets(engine)),
        _read_if_available(read_relays(engine)),
    )  # fmt: skip
    return (text for part in parts for text in part or ())


async def _read_if_available(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except Unavailable:
        return None


async def _read_shards(engine: Engine) -> Sequence[str]:
    """Each shard by itself: one that does not answer has no sample, instead of a part in a sum."""
    shards = [shard for shard in engine.store.shards() if not shard.unavailable()]
    read = await asyncio.gather(*(_read_if_available(_read_shard(shard)) for shard in shards))
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


async def _read_queues(engine: Engine) -> Sequence[str]:
    queues = await engine.queues.list()
    return (PAUSED.text(labelled("queue", {queue.name: queue.paused for queue in queues})),)


async def _read_workers(engine: Engine) -> Sequence[str]:
    workers = await engine.queues.workers()
    ready = [worker for worker in workers if worker.state is WorkerState.READY]
    return (
        WORKERS.text(labelled("state", _by_state(workers))),
        CAPACITY.text(one(sum(worker.capacity for worker in ready))),
        RUNNING.text(one(sum(worker.running for worker in ready))),
    )


def _by_state(workers: Iterable[Worker]) -> dict[str, float]:
    return {**dict.fromkeys(map(str, WorkerState), 0), **Counter(str(worker.state) for worker in workers)}


async def _read_late_schedules(engine: Engine) -> Sequence[str]:
    now = await engine.store.now()
    due = await engine.store.due_schedules(now - LATE_AFTER, LATE_SCHEDULES)
    awaited = {one.schedule.name: at for one in due if (at := wake_at(one)) is not None}
    late = {name: (now - at).total_seconds() for name, at in awaited.items() if now - at > LATE_AFTER}
    return LATE.text(one(len(late))), LATE_SECONDS.text(labelled("schedule", late))


async def _read_fleets(engine: Engine) -> Sequence[str]:
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


async def _read_process(engine: Engine) -> list[str]:
    """All of them. Whatever is down is told as down, within a few seconds."""
    views, broker, objects, types = await asyncio.gather(
        engine.shards.views(),
        _probe(engine.broker.depths()),
        _probe(engine.objects.stat(PROBED_KEY)),
        _declared_types(engine),
    )
    return [
        *_moves(engine.meters, types),
        *_services(engine.meters),
        SHARD_UP.text(labelled("shard", {str(view.number): view.up for view in views})),
        SHARD_CALLS.text(labelled("shard", {str(view.number): view.calls for view in views})),
        SHARD_FAILURES.text(labelled("shard", {str(view.number): view.failures for view in views})),
        BROKER_UP.text(one(broker)),
        OBJECTS_UP.text(one(objects)),
        CONNECTIONS.text(one(engine.meters.connections())),
        CONNECTIONS_MAX.text(one(engine.meters.connections_max)),
        STREAMS.text(one(engine.meters.streams)),
        TAIL_LAG.text(labelled("shard", {str(shard): lag for shard, lag in engine.meters.tail_lags.items()})),
        *_process_usage(),
    ]


async def _probe(call: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(PROBE_WITHIN.total_seconds()):
            await call
    except (PenstockError, TimeoutError):
        return False
    return True


async def _declared_types(engine: Engine) -> Iterable[str]:
    try:
        return (await engine.catalog.read()).types
    except Unavailable:
        return ()


def _moves(meters: Meters, types: Iterable[str]) -> Iterator[str]:
    """Declared types have their series from the start: Prometheus does not see the rise to a series' first value."""
    yield SUBMITTED.text(one(meters.submitted))
    yield ENDED.text(_ended(meters, types))
    for family, move in ((RETRIES, Move.SETTLE), (LEASES_LOST, Move.RECLAIM), (RELEASES, Move.RELEASE)):
        yield family.text(labelled("type", _by_type(meters, types, move)))
    yield REFUSALS.text(labelled("reason", {"lost": 0, **{str(loss): n for loss, n in meters.refusals.items()}}))
    yield WAITS.text(_histograms(meters.waits))
    yield RUNS.text(_histograms(meters.runs))
    yield TICKS.text(labelled("outcome", {"job": meters.ticks_as_jobs, "skip": meters.ticks_skipped}))


def _ended(meters: Meters, types: Iterable[str]) -> Iterator[Sample]:
    counts = Counter({(name, state): 0 for name in types for state in sorted(TERMINAL)})
    for (name, _, after), jobs in meters.moves.items():
        if after in TERMINAL:
            counts[plain_type(name), after] += jobs
    for (name, state), jobs in counts.items():
        yield "", {"type": name, "outcome": state}, jobs


def _by_type(meters: Meters, types: Iterable[str], wanted: Move) -> Mapping[str, float]:
    """How often a move happened to jobs of each type; of settles those that led to another attempt."""
    counts = Counter(dict.fromkeys(types, 0))
    for (name, move, after), jobs in meters.moves.items():
        if move is wanted and (move is not Move.SETTLE or after is State.SCHEDULED):
            counts[plain_type(name)] += jobs
    return counts


def _histograms(measured: Mapping[str, Histogram]) -> Iterator[Sample]:
    merged: defaultdict[str, Histogram] = defaultdict(Histogram)
    for name, part in measured.items():
        merged[plain_type(name)].add(part)
    for name, whole in merged.items():
        yield from histogram({"type": name}, whole)


def _services(meters: Meters) -> Iterator[str]:
    beats = meters.services
    yield STEPS.text(labelled("service", {name: beat.at for name, beat in beats.items()}))
    yield FAILURES.text(labelled("service", {name: beat.failures for name, beat in beats.items()}))


def _process_usage() -> Iterator[str]:
    """What Prometheus' own clients tell, under the same names, as far as this system shows it."""
    times = os.times()
    yield BUILD.text((("", {"version": __version__}, 1.0),))
    yield CPU.text(one(times.user + times.system))
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        yield MEMORY.text(one(pages * resource.getpagesize()))
        yield FILES.text(one(len(os.listdir("/proc/self/fd"))))  # noqa: PTH208 — paths would be made for nothing
    yield FILES_MAX.text(one(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


OPERATIONS = (read_metrics,)
