"""Where the bench keeps its things, and what every child process is told of it."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
CHECKOUT = SOURCE.parent
PROJECT_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one run, below BENCH_HOME; `started` is the file that every executed job writes to.

    `source` is the `bench` folder whose adapters run: another checkout has its own.
    """

    home: Path
    started: Path
    source: Path = SOURCE
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def data(self) -> Path:
        return self.home / "data"

    def environ(self) -> dict[str, str]:
        """The environment of an adapter: it finds `peers` here, and its servers in the BENCH_* variables."""
        return {
            **os.environ,
            **self.addresses,
            "BENCH_DATA": str(self.data),
            "BENCH_LOG": str(self.started),
            "NODE_PATH": str(self.home / "node" / "node_modules"),
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(self.home / "pycache"),
        }


def prepare() -> Places:
    """The folders, made if need be."""
    home = Path(os.environ.get("BENCH_HOME") or CHECKOUT / ".bench").resolve()
    places = Places(home=home, started=_memory(home) / f"penstock-bench-{os.getpid()}.log")
    for folder in (home, places.logs, places.data):
        folder.mkdir(parents=True, exist_ok=True)
    (home / ".gitignore").write_text("*\n")
    return places


def _memory(home: Path) -> Path:
    """A folder in memory where the system has one, so that recording a start costs the disk nothing."""
    shared_memory = Path("/dev/shm")  # noqa: S108
    return shared_memory if os.access(shared_memory, os.W_OK) else home
