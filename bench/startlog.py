"""The file to which every executed job appends one record: the only witness for counts, rates and latencies."""

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("<Qdd")
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Start:
    """One execution of job `index`; both times in seconds since the epoch."""

    index: int
    enqueued_at: float
    started_at: float


@dataclass(frozen=True, slots=True)
class StartLog:
    """The records of the step that is running; `clear` begins a new one."""

    path: Path

    def clear(self) -> None:
        """Truncate in place: workers hold the file open for appending."""
        self.path.touch()
        os.truncate(self.path, 0)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def count(self) -> int:
        return self.path.stat().st_size // _RECORD.size

    def starts(self) -> list[Start]:
        """All complete records, in the order of their start."""
        content = self.path.read_bytes()
        whole = len(content) // _RECORD.size * _RECORD.size
        found = [Start(*fields) for fields in _RECORD.iter_unpack(content[:whole])]
        return sorted(found, key=lambda start: start.started_at)

    def wait_for(self, jobs: int, *, within: float, idle: float) -> None:
        """Return when `jobs` have started, after `within` seconds, or after `idle` seconds without a new one."""
        deadline = time.monotonic() + within
        seen, idle_deadline = 0, time.monotonic() + idle
        while (count := self.count()) < jobs:
            now = time.monotonic()
            if count != seen:
                seen, idle_deadline = count, now + idle
            if now > min(deadline, idle_deadline):
                return
            time.sleep(_POLL_SECONDS)


def rate_per_second(starts: list[Start]) -> float | None:
    """Starts per second from the first to the last; None if there is no such span."""
    if len(starts) < 2:
        return None
    span = starts[-1].started_at - starts[0].started_at
    return (len(starts) - 1) / span if span > 0 else None


def latency_ms(starts: list[Start], quantile: float) -> float | None:
    """That quantile of the time from the call of enqueue to the start."""
    waits = sorted((start.started_at - start.enqueued_at) * 1000 for start in starts)
    return waits[min(len(waits) - 1, int(len(waits) * quantile))] if waits else None


def anomaly(starts: list[Start], expected: int) -> str:
    """Says so when jobs are missing or ran twice; else empty."""
    distinct = len({start.index for start in starts})
    repeated = f", {len(starts) - distinct} ran again" if distinct < len(starts) else ""
    missing = f"{distinct} of {expected} jobs ran" if distinct < expected else ""
    return (missing or "all jobs ran") + repeated if missing or repeated else ""
