"""How much memory there is, and how much a process uses. Zero means: cannot be told here."""

import os
from pathlib import Path

MIB = 1024 * 1024
PROC = Path("/proc")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def resident_bytes(pid: int) -> int:
    """What the process holds in memory now."""
    try:
        pages = (PROC / str(pid) / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def machine_bytes(limits: tuple[Path, ...] = CGROUP_LIMITS) -> int:
    """The memory of this machine, or of the container that this process is confined to."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *(limit for path in limits if (limit := _number(path)) is not None)])


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # no such control group, or "max"


def limit_bytes(memory_mib: int, executors: int) -> int:
    """What one executor may use: as set, or its share of the machine with one more share for everything else."""
    return memory_mib * MIB if memory_mib else machine_bytes() // (executors + 1)
