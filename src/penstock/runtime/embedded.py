"""The embedded system: one SQLite file, a broker inside the process, a folder of objects."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.errors import InvalidSetting
from penstock.model.timing import SystemClock
from penstock.objects.folder import FolderObjects
from penstock.store.sqlite import SqliteStore


@asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator[Engine]:
    """The engine over the data folder of the settings; the folder is made if it is missing."""
    clock = SystemClock()
    folder = _data_folder(settings)
    store = await SqliteStore.open(folder / "penstock.db", clock=clock)
    objects = FolderObjects(folder / "objects", clock)
    engine = Engine(store, MemoryBroker(), objects, settings, clock, random.Random())
    try:
        yield engine
    finally:
        await engine.close()


def _data_folder(settings: Settings) -> Path:
    folder = Path(settings.server.data).expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise InvalidSetting(
            f"server.data: cannot use the folder {folder} ({fault.strerror}); choose another with --data"
        ) from fault
    return folder
