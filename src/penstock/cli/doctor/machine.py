"""This machine: what is installed, its clock, and whether the data folder can be written, locked and flushed fast."""

import fcntl
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path

from penstock.cli.doctor.findings import Finding, FindingStatus, fail, ok, warn
from penstock.cli.job_format import size
from penstock.model.clock import Clock, SystemClock
from penstock.model.extras import install

NEEDED_SQLITE = (3, 51)
SANE_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""This version did not exist before it: an earlier time means a wrong clock."""


LITTLE_SPACE = 1 << 30
TOO_LITTLE_SPACE = 100 << 20
SLOW_FLUSH_MS = 20.0
FLUSHES = 20


def examine_machine(clock: Clock | None = None) -> Iterator[Finding]:
    """Python, libraries, cores, clock."""
    yield _python()
    yield _sqlite()
    yield _speedups()
    yield ok("cores", f"{os.cpu_count()} ({platform.machine()}, {platform.system()} {platform.release()})")
    yield _clock((clock or SystemClock()).now())


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return warn("python", f"{found} (free-threaded)", "not tested yet: use an ordinary build")
    return ok("python", found)


def _sqlite() -> Finding:
    # apsw carries its own SQLite and has its version, with one more number at the end.
    version = metadata.version("apsw")
    if tuple(map(int, version.split(".")[:2])) < NEEDED_SQLITE:
        return warn("sqlite", version, "older than what we test: pip install --upgrade apsw")
    return ok("sqlite", version.rpartition(".")[0])


def _speedups() -> Finding:
    missing = [name for name in ("uvloop", "httptools") if util.find_spec(name) is None]
    if missing:
        return warn("speed-ups", f"without {' and '.join(missing)}", f"optional: {install('fast')}")
    return ok("speed-ups", "uvloop and httptools are installed")


def _clock(now: datetime) -> Finding:
    if now < SANE_SINCE:
        return warn("clock", f"says {now:%Y-%m-%d %H:%M}", "set it: due times and retention are judged by it")
    return ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def examine_folder(folder: Path) -> Iterator[Finding]:
    """The data folder, or the nearest parent that exists if it is still to be made."""
    existing = _existing(folder)
    access = _access(folder, existing)
    yield access
    if access.status is FindingStatus.FAIL:
        return
    yield _lock(folder)
    yield _space(existing)
    # The disk of the data folder is what is measured, so the scratch folder is made there.
    with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=existing) as scratch:
        yield _wal(Path(scratch))
        yield _flush(Path(scratch))


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _access(folder: Path, existing: Path) -> Finding:
    if not existing.is_dir():
        return fail("data folder", f"{existing} is a file", "choose another with --data")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return fail(
            "data folder", f"{existing} cannot be written", "give yourself access, or choose another with --data"
        )
    if existing != folder:
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


def _space(existing: Path) -> Finding:
    free = shutil.disk_usage(existing).free
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
