"""The machine and what is installed on it."""

import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata, util

from penstock.cli.doctor.finding import Finding, ok, warn
from penstock.model.clock import Clock, SystemClock
from penstock.model.extras import install

NEEDED_SQLITE = (3, 51)
SANE_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""No machine that runs this version can live before it."""


def examine(clock: Clock | None = None) -> Iterator[Finding]:
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
