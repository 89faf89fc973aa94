"""What a system costs before and without work: start-up, start from zero workers, memory, and idle CPU time."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.lab.bench import machine
from penstock.lab.bench.app import lateness_ms
from penstock.lab.bench.rig import APP, FROM_ZERO, PAD, TYPE, Amounts, Figure, Rig, Workshop
from penstock.lab.children import ChildFailed, Children, clean_environ
from penstock.model.clock import SystemClock

SETTLE_SECONDS = 1.0


def idle(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Processor time of the server, and of its worker, in percent of a core. Nothing where there is no /proc."""
    if not machine.AVAILABLE:
        return []
    with workshop.rig() as rig:
        time.sleep(SETTLE_SECONDS)
        worker = machine.family_of(rig.pid)[1:]
        before = _cpu([rig.pid]), _cpu(worker)
        time.sleep(amounts.idle_seconds)
        after = _cpu([rig.pid]), _cpu(worker)
    spent = [(end - begin) / amounts.idle_seconds * 100 for begin, end in zip(before, after, strict=True)]
    return [
        Figure("idle", "server", spent[0], "% of a core", f"over {amounts.idle_seconds:g} s"),
        Figure("idle", "worker", spent[1], "% of a core", f"agent and {len(worker) - 1} executors"),
    ]


def _cpu(pids: list[int]) -> float:
    return sum(map(machine.cpu_seconds, pids))


def memory(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Resident memory of server, agent and executors: idle, and after a drain. Nothing where there is no /proc."""
    if not machine.AVAILABLE:
        return []
    with workshop.rig() as rig:
        idle = _resident(rig, "idle")
        rig.drain(amounts.few_jobs)
        return idle + _resident(rig, f"after {amounts.few_jobs:,} jobs")


def _resident(rig: Rig, when: str) -> list[Figure]:
    agents = machine.children_of(rig.pid)
    executors = [pid for agent in agents for pid in machine.children_of(agent)]
    named = {"server": [rig.pid], "agent": agents, "executor": executors}
    return [
        Figure("memory", f"{name}, {when}", max(map(machine.resident_mib, pids)), "MiB", _how_many(pids))
        for name, pids in named.items()
        if pids
    ]


def _how_many(pids: list[int]) -> str:
    return f"the largest of {len(pids)}" if len(pids) > 1 else ""


HELP_SECONDS = 10.0


def startup(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """`penstock --help` to its end, and `penstock up` until it answers, without and with a worker that has joined."""
    times = range(amounts.starts)
    return [
        _figure("penstock --help", [_help_seconds() for _ in times]),
        _figure("penstock up, ready", [_ready_seconds(workshop) for _ in times]),
        _figure("penstock up, ready with a worker", [_ready_seconds(workshop, APP) for _ in times]),
    ]


def _figure(name: str, spans: list[float]) -> Figure:
    return Figure("startup", name, statistics.median(spans) * 1000, "ms", f"median of {len(spans)}")


def _help_seconds() -> float:
    command = [sys.executable, "-m", "penstock", "--help"]
    environ = clean_environ(os.environ)
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=HELP_SECONDS, env=environ)
    return time.perf_counter() - began


def _ready_seconds(workshop: Workshop, *words: str) -> float:
    with tempfile.TemporaryDirectory(dir=workshop.folder) as folder:
        began = time.perf_counter()
        with Children(Path(folder), {}).server(*words, "--data", "data", *workshop.flags):
            return time.perf_counter() - began


FLEET = "default"
GONE_SECONDS = 30.0
START_SECONDS = 30.0


def zero(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Again and again: let the fleet go to zero, leave it to its policy, submit one job, and see it start."""
    clock = SystemClock()
    with workshop.rig(FROM_ZERO) as rig:
        rig.starts.clear()
        for number in range(amounts.zero_jobs):
            _go_to_zero(rig, clock)
            rig.client.submit(TYPE, {"number": number, "expected_at": clock.now().timestamp(), "pad": PAD})
            if not rig.starts.wait_for(number + 1, START_SECONDS):
                raise ChildFailed(f"no worker started a job within {START_SECONDS:.0f} s")
        starts = rig.starts.starts()
    return [
        Figure("zero", f"no worker → first start, {label}", lateness_ms(starts, quantile), "ms", note)
        for label, quantile, note in (("p50", 0.5, f"{len(starts)} times"), ("p95", 0.95, ""))
    ]


def _go_to_zero(rig: Rig, clock: SystemClock) -> None:
    """Scale to 0 explicitly, which is faster than waiting for the policy; then leave it to the policy again."""
    rig.client.scale_fleet(FLEET, 0)
    deadline = clock.monotonic() + GONE_SECONDS
    while rig.client.workers():
        if clock.monotonic() > deadline:
            raise ChildFailed(f"the worker did not go within {GONE_SECONDS:.0f} s")
        time.sleep(0.05)
    rig.client.scale_fleet(FLEET, "auto")
    # The autoscaler must have observed the fleet at zero, and be idle.
    time.sleep(1.2)
