"""Metrics of direct workers on this machine, collected by the process that started them: they answer no scrape.

Each worker writes its counts into files of a folder, atomically; the process adds them to its own counters and removes
them. The counts of a killed worker's last seconds are lost.
"""

import logging
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock.engine import Engine
from penstock.engine.meters import Meters, add_tally, take_tally
from penstock.runtime.services import run_loops
from penstock.scheduler import run_service

logger = logging.getLogger("penstock.metrics")

FOLDER = "PENSTOCK_TALLIES"
"""The variable that names the folder to a worker."""

EVERY = timedelta(seconds=3)
SUFFIX = ".tally"


class Collection:
    """The folder of a process that starts workers."""

    def __init__(self, meters: Meters, folder: Path) -> None:
        self._meters = meters
        self._folder = folder

    async def step(self) -> timedelta:
        """Add the counts of all files."""
        for file in sorted(self._folder.glob(f"*{SUFFIX}")):
            told = file.read_bytes()
            # Removed first, so that nothing is counted twice.
            file.unlink()
            try:
                add_tally(self._meters, told)
            except msgspec.MsgspecError as error:
                logger.warning("what a worker has counted cannot be read: %s", error)
        return EVERY


class Contribution:
    """The counts of one worker."""

    def __init__(self, meters: Meters, folder: Path) -> None:
        self._meters = meters
        self._folder = folder

    async def step(self) -> timedelta:
        self.leave()
        return EVERY

    def leave(self) -> None:
        """Write the counts since the last call. If that fails they are lost, and work goes on."""
        told = take_tally(self._meters)
        if told is None:
            return
        name = self._folder / secrets.token_hex(8)
        try:
            name.write_bytes(told)
            name.rename(name.with_suffix(SUFFIX))
        except OSError as error:
            logger.debug("what was counted is not told: %s", error)


@asynccontextmanager
async def collect_tallies(engine: Engine) -> AsyncIterator[dict[str, str]]:
    """Collect the counts of direct workers while the body runs; yields the environment that names the folder to them.

    For workers over HTTP the server counts itself.
    """
    if not engine.shared:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="penstock-tallies-") as folder:
        async with run_loops([run_service("tallies", Collection(engine.meters, Path(folder)).step)]):
            yield {FOLDER: folder}


@asynccontextmanager
async def contribute_tallies(engine: Engine) -> AsyncIterator[None]:
    """Write this worker's counts for the process that started it, if that collects them; at the end, the rest."""
    folder = os.environ.get(FOLDER)
    if folder is None or engine.settings.metrics.address:
        yield
        return
    contribution = Contribution(engine.meters, Path(folder))
    async with run_loops([run_service("tallies", contribution.step)]):
        try:
            yield
        finally:
            contribution.leave()
