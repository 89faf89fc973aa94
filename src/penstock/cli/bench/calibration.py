"""How fast the machine is at this moment, without us: figures are only comparable between like machines."""

import os
import platform
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from penstock.cli.doctor.folder import flush_ms

LOOPS = 1_000_000


class Calibration(Struct, frozen=True):
    """Median fdatasync of an overwritten 8 KiB page, a fixed loop of arithmetic, and what else keeps the cores busy."""

    cores: int
    system: str
    python: str
    fdatasync_ms: float
    cpu_loop_ms: float
    load_average: float


def calibrate(folder: Path) -> Calibration:
    """Measured in `folder`, which is on the disk that the servers write to."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        flush = flush_ms(Path(scratch) / "probe")
    system = f"{platform.system()} {platform.machine()}"
    cores, python = os.cpu_count() or 1, platform.python_version()
    return Calibration(cores, system, python, flush, _cpu_loop_ms(), os.getloadavg()[0])


def _cpu_loop_ms() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(LOOPS))
    return (time.perf_counter() - began) * 1000
