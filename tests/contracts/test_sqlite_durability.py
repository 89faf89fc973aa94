"""What the SQLite store answers for is on the disk: at every answer the write-ahead log has nothing left to sync."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import TICKET, StoreStage

WRITTEN, SYNCED = "written", "synced"


class SeenFile(apsw.VFSFile):
    """A file of the system; notes when its bytes are written and when they are made durable."""

    def __init__(self, base: str, name: "str | apsw.URIFilename | None", flags: list[int], seen: list[str]) -> None:
        super().__init__(base, name, flags)
        self._seen = seen if flags[0] & apsw.SQLITE_OPEN_WAL else []

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._seen.append(WRITTEN)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._seen.append(SYNCED)


class SeenDisk(apsw.VFS):
    """The system's files; `seen` is what happened to the write-ahead log since it was last emptied."""

    def __init__(self) -> None:
        self._system = apsw.vfs_names()[0]
        super().__init__("penstock-seen", self._system, makedefault=True)
        self.seen: list[str] = []

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> SeenFile:  # noqa: N802
        return SeenFile(self._system, name, flags, self.seen)


@pytest.fixture
def disk() -> Iterator[SeenDisk]:
    """For every database opened meanwhile."""
    disk = SeenDisk()
    yield disk
    disk.unregister()


@pytest.fixture
async def store(disk: SeenDisk, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db", clock=SimulatedClock())
    yield store
    await store.close()


async def test_every_acknowledged_move_was_synced_before_its_answer(disk: SeenDisk, store: SqliteStore) -> None:
    stage = StoreStage(store, SimulatedClock())
    for move in (stage.submit, stage.run_job, stage.end_job):
        disk.seen.clear()
        await move()
        assert WRITTEN in disk.seen
        assert disk.seen[-1] == SYNCED


async def test_calls_that_share_a_commit_share_its_sync(disk: SeenDisk, store: SqliteStore) -> None:
    stage = StoreStage(store, SimulatedClock())
    before = store.writer.commits
    disk.seen.clear()
    await asyncio.gather(*(store.submit([stage.new()], TICKET) for _ in range(64)))
    assert disk.seen[-1] == SYNCED
    assert 1 <= disk.seen.count(SYNCED) <= store.writer.commits - before
