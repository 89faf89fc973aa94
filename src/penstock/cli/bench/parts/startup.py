"""How long it takes to be there."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import APP, Workshop
from penstock.cli.children import Children, clean_environ

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
    with tempfile.TemporaryDirectory(dir=workshop.folder) as place:
        began = time.perf_counter()
        with Children(Path(place), {}).server(*words, "--data", "data", *workshop.flags):
            return time.perf_counter() - began
