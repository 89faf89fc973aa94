"""What one process has done and how it sees the rest: its own counters, and the health of what it depends on.

Every process tells its own, so `sum` over processes is right for the counters; of the health gauges take `min`.
"""

import asyncio
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from penstock import __version__
from penstock.api.exposition import Family, Sample, histogram, labelled, one
from penstock.engine import Engine
from penstock.engine.meters import Histogram, Meters
from penstock.model.declarations import plain_type
from penstock.model.errors import PenstockError, Unavailable
from penstock.model.lifecycle import TERMINAL, Move, State

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
BUILD = Family("penstock_build_info", "gauge", "1, with the version of this process.")
CPU = Family("process_cpu_seconds_total", "counter", "User and system CPU time of this process.")
MEMORY = Family("process_resident_memory_bytes", "gauge", "Resident memory of this process.")
FILES = Family("process_open_fds", "gauge", "Open files of this process.")
FILES_MAX = Family("process_max_fds", "gauge", "Most files that this process may open.")

FAMILIES = (
    SUBMITTED, ENDED, RETRIES, LEASES_LOST, RELEASES, REFUSALS, WAITS, RUNS, TICKS, STEPS, FAILURES, SHARD_UP,
    SHARD_CALLS, SHARD_FAILURES, BROKER_UP, OBJECTS_UP, CONNECTIONS, CONNECTIONS_MAX, BUILD, CPU, MEMORY, FILES,
    FILES_MAX,
)  # fmt: skip


async def process_families(engine: Engine) -> list[str]:
    """All of them. Whatever is down is told as down, within a few seconds."""
    views, broker, objects, types = await asyncio.gather(
        engine.shards.views(),
        _answers(engine.broker.depths()),
        _answers(engine.objects.stat(PROBED_KEY)),
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
        *_process(),
    ]


async def _answers(call: Awaitable[object]) -> bool:
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


def _process() -> Iterator[str]:
    """What Prometheus' own clients tell, under the same names, as far as this system shows it."""
    times = os.times()
    yield BUILD.text((("", {"version": __version__}, 1.0),))
    yield CPU.text(one(times.user + times.system))
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        yield MEMORY.text(one(pages * resource.getpagesize()))
        yield FILES.text(one(len(os.listdir("/proc/self/fd"))))  # noqa: PTH208 — paths would be made for nothing
    yield FILES_MAX.text(one(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
