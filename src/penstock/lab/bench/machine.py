"""How fast the machine is at this moment, without us: figures are only comparable between like machines."""

import os
import platform
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from penstock.cli.doctor.machine import flush_ms

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


PROC = Path("/proc")
AVAILABLE = (PROC / "self" / "stat").exists()


def children_of(pid: int) -> list[int]:
    """Direct children, in the order they were started."""
    found = []
    for task in (PROC / str(pid) / "task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)


def family_of(pid: int) -> list[int]:
    """The process and all its descendants."""
    return [pid, *(member for child in children_of(pid) for member in family_of(child))]


def resident_mib(pid: int) -> float:
    """Resident memory."""
    pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def cpu_seconds(pid: int) -> float:
    """Processor time used so far, in the process itself."""
    # The name in the second field may hold blanks and brackets; the rest begins after the last one.
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
