"""Ticks in SQLite beyond the contract: when the tables or the disk refuse them, and how much is read of a schedule."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.schedules import ACTIVE_MAX
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.schedules import job_of, move_of, put
from penstock.testing.store_contract.stage import SECOND, TICKET, StoreStage

LARGE = b'"' + b"x" * 4000 + b'"'


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db", clock=SimulatedClock())
    yield store
    await store.close()


@pytest.fixture
def stage(store: SqliteStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


async def test_a_disk_that_fills_up_during_a_tick_leaves_nothing(store: SqliteStore, stage: StoreStage) -> None:
    reads = [await put(stage, f"s{number}") for number in range(99)]
    await store.writer.run(lambda tx: tx.connection.pragma("max_page_count", 1))
    with pytest.raises(StoreUnavailable, match="full"):
        await store.tick([move_of(read, [job_of(stage, read, params=LARGE)]) for read in reads], TICKET)
    assert await stage.all_jobs() == []
    assert sorted(await store.schedules(None, 99), key=lambda one: int(one.name[1:])) == reads
    assert await store.ticks("s0", None, 9) == []


async def test_a_schedule_with_many_active_jobs_names_its_oldest(store: SqliteStore, stage: StoreStage) -> None:
    read = await put(stage)
    jobs = [job_of(stage, read, stage.clock.now() - SECOND * ago) for ago in range(ACTIVE_MAX + 5)]
    await store.tick([move_of(read, jobs, next_tick_at=read.next_tick_at)], TICKET)
    (due,) = await store.due_schedules(stage.clock.now() + SECOND, 9)
    assert due.active == tuple(job.id for job in jobs[:ACTIVE_MAX])
