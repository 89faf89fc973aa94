"""The application that is measured: jobs that only record when they started, and the file they record it in."""

import functools
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from penstock import Penstock

app = Penstock()


@app.job
async def noop(number: int, expected_at: float, pad: str = "") -> None:
    """Append one record to the start log."""
    note_start(expected_at)


@app.job
async def probe(expected_at: float) -> None:
    """The same in a queue of its own, to measure it beside the other."""
    note_start(expected_at)


VARIABLE = "PENSTOCK_BENCH_STARTS"
_RECORD = struct.Struct("<dd")
_LOOK_SECONDS = 0.02


class JobStart(Struct, frozen=True, order=True):
    """One start, and when it was expected; seconds since the epoch."""

    started_at: float
    expected_at: float


def note_start(expected_at: float) -> None:
    """Append one record. One small append is atomic, so executors need no lock between them."""
    os.write(_descriptor(), _RECORD.pack(time.time(), expected_at))  # noqa: TID251 - compared across processes


@functools.cache
def _descriptor() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class StartLog:
    """The file to which every started job appends one record; rates and latencies are read from it alone.

    It holds the records of one measurement; `clear` begins the next.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @property
    def environ(self) -> dict[str, str]:
        """The environment variable that tells the jobs where to write."""
        return {VARIABLE: str(self._path)}

    def clear(self) -> None:
        """Truncate in place: executors hold the file open."""
        os.truncate(self._path, 0)

    def count(self) -> int:
        return self._path.stat().st_size // _RECORD.size

    def starts(self) -> list[JobStart]:
        """All records, in the order of their start."""
        content = self._path.read_bytes()
        return sorted(JobStart(*fields) for fields in _RECORD.iter_unpack(content[: self.count() * _RECORD.size]))

    def wait_for(self, jobs: int, patience: float) -> bool:
        """True once so many have started; False when that takes longer."""
        deadline = time.monotonic() + patience
        while self.count() < jobs:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def rate(starts: Sequence[JobStart]) -> float:
    """Starts per second from the first to the last; 0 where there is no such span."""
    span = starts[-1].started_at - starts[0].started_at if len(starts) > 1 else 0.0
    return (len(starts) - 1) / span if span > 0 else 0.0


def lateness_ms(starts: Sequence[JobStart], quantile: float) -> float:
    """That quantile of the time from when a start was expected."""
    waits = sorted((start.started_at - start.expected_at) * 1000 for start in starts)
    return waits[min(len(waits) - 1, int(len(waits) * quantile))]
