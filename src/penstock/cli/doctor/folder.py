"""The data folder: may we write there, who has it open, and what its disk and filesystem can do."""

import fcntl
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from penstock.cli.doctor.finding import Finding, FindingStatus, fail, ok, warn
from penstock.cli.job_format import size

LITTLE_SPACE = 1 << 30
TOO_LITTLE_SPACE = 100 << 20
SLOW_FLUSH_MS = 20.0
FLUSHES = 20


def examine(folder: Path) -> Iterator[Finding]:
    """The folder, or the place where it would be made."""
    place = _existing(folder)
    access = _access(folder, place)
    yield access
    if access.status is FindingStatus.FAIL:
        return
    yield _lock(folder)
    yield _space(place)
    # Only a folder on the very same disk tells the truth about it.
    with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=place) as scratch:
        yield _wal(Path(scratch))
        yield _flush(Path(scratch))


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _access(folder: Path, place: Path) -> Finding:
    if not place.is_dir():
        return fail("data folder", f"{place} is a file", "choose another with --data")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return fail("data folder", f"{place} cannot be written", "give yourself access, or choose another with --data")
    if place != folder:
        return ok("data folder", f"{folder} (made at the first start)")
    if folder.stat().st_mode & 0o077:
        return warn("data folder", f"{folder} can be read by others", f"if jobs hold secrets: chmod 700 {folder}")
    return ok("data folder", str(folder))


def _lock(folder: Path) -> Finding:
    try:
        descriptor = os.open(folder / "penstock.db.lock", os.O_RDONLY)
    except FileNotFoundError:
        return ok("data lock", "free")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return ok("data lock", "free")
    except BlockingIOError:
        return ok("data lock", f"held by process {os.read(descriptor, 32).decode().strip()}")
    finally:
        os.close(descriptor)


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    found = f"{size(free)} free"
    if free < TOO_LITTLE_SPACE:
        return fail("disk space", found, "make room: a full disk refuses every submit")
    if free < LITTLE_SPACE:
        return warn("disk space", found, "make room, or shorten [retention]")
    return ok("disk space", found)


def _wal(scratch: Path) -> Finding:
    with closing(sqlite3.connect(scratch / "probe.db")) as database:
        (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            return fail("filesystem", f"no write-ahead log here ({mode})", "choose a local disk with --data")
        database.execute("CREATE TABLE probe (number INTEGER)")
    return ok("filesystem", "keeps a write-ahead log")


def _flush(scratch: Path) -> Finding:
    typical = flush_ms(scratch / "probe")
    found = f"{typical:.2f} ms to make a write durable"
    if typical > SLOW_FLUSH_MS:
        return warn("disk flush", found, "single submits will be slow: use a faster disk, or submit in batches")
    return ok("disk flush", found)


def flush_ms(path: Path) -> float:
    """The median time of fdatasync after overwriting 8 KiB."""
    flush = getattr(os, "fdatasync", os.fsync)
    page = b"p" * 8192
    times = []
    with path.open("wb", buffering=0) as file:
        file.write(page)
        flush(file.fileno())
        for _ in range(FLUSHES):
            os.pwrite(file.fileno(), page, 0)
            began = time.perf_counter()
            flush(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
