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
    """Median fdatasync of an overwritten 8 KiB page, and a fixed loop of arithmetic."""

    cores: int
    system: str
    python: str
    fdatasync_ms: float
    cpu_loop_ms: float


def calibrate(folder: Path) -> Calibration:
    """Measured in `folder`, which is on the disk that the servers write to."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        flush = flush_ms(Path(scratch) / "probe")
    system = f"{platform.system()} {platform.machine()}"
    return Calibration(os.cpu_count() or 1, system, platform.python_version(), flush, _cpu_loop_ms())


def _cpu_loop_ms() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(LOOPS))
    return (time.perf_counter() - began) * 1000
