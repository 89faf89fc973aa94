"""How fast the machine is at this moment: two numbers that tell a quiet repetition from a noisy one."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_WRITES = 100
_PAGE = b"p" * 8192
_LOOPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """Median fdatasync of an overwritten 8 KiB page, and a fixed loop of arithmetic."""

    fdatasync_us: float
    cpu_ms: float


def calibrate(folder: Path) -> Calibration:
    """Measure in `folder`, which should be on the disk that the peers write to."""
    return Calibration(fdatasync_us=_fdatasync_us(folder / "calibration"), cpu_ms=_cpu_ms())


def _fdatasync_us(path: Path) -> float:
    flush = getattr(os, "fdatasync", os.fsync)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(file, _PAGE * _WRITES, 0)
        os.fsync(file)
        return statistics.median(_timed_write(file, page, flush) for page in range(_WRITES)) * 1e6
    finally:
        os.close(file)
        path.unlink()


def _timed_write(file: int, page: int, flush: Callable[[int], None]) -> float:
    os.pwrite(file, _PAGE, page * len(_PAGE))
    began = time.perf_counter()
    flush(file)
    return time.perf_counter() - began


def _cpu_ms() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(_LOOPS))
    return (time.perf_counter() - began) * 1000
