"""What the system knows of our processes: memory and processor time, by pid. Only where there is a /proc."""

import os
from pathlib import Path

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
