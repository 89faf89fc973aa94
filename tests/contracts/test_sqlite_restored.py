"""A database file that was put back from a backup: no fence counts twice once its operator has said so."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.model.ids import JobId, ShardId, new_job_id, to_bytes
from penstock.model.job import Lease, Loss
from penstock.model.lifecycle import State
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.connection import migrations
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import SECOND, StoreStage

BEFORE_EPOCHS = 12
"""The last migration before there were epochs."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "penstock.db"


@asynccontextmanager
async def opened(path: Path, clock: SimulatedClock | None = None) -> AsyncIterator[StoreStage]:
    clock = clock or SimulatedClock()
    store = await SqliteStore.open(path, clock=clock)
    try:
        yield StoreStage(store, clock)
    finally:
        await store.close()


async def say_restored(path: Path) -> str:
    """What `penstock db restored` prints, and that it succeeds."""
    said = await asyncio.to_thread(CliRunner().invoke, ROOT, ["db", "restored", "--data", str(path.parent)])
    assert said.exit_code == 0, said.output
    return said.output


async def test_a_file_that_was_put_back_lets_nothing_from_before_settle(path: Path) -> None:
    async with opened(path) as stage:
        old, waiting = await stage.run_job(), (await stage.submit()).id
    shutil.copy(path, path.with_suffix(".backup"))
    async with opened(path) as stage:
        (late,) = await stage.claim(waiting)
    shutil.copy(path.with_suffix(".backup"), path)
    assert "no lease from before counts any more" in await say_restored(path)
    async with opened(path) as stage:
        assert (await stage.settle(old)).loss is Loss.LOST
        (again,) = await stage.claim(waiting)
        assert (await stage.settle(Lease(late.job, late.fence))).loss is Loss.LOST
        assert again.fence > late.fence


async def test_two_restores_of_one_backup_give_no_fence_twice(path: Path) -> None:
    """Both begin with the epoch of the backup."""
    clock, fences = SimulatedClock(), []
    async with opened(path, clock) as stage:
        job = (await stage.submit()).id
    shutil.copy(path, path.with_suffix(".backup"))
    for _ in range(2):
        clock.advance(SECOND)
        shutil.copy(path.with_suffix(".backup"), path)
        async with opened(path, clock) as stage:
            (shard,) = stage.store.shards()
            await shard.raise_epoch()
            (claim,) = await stage.claim(job)
            fences.append(claim.fence)
    assert len(set(fences)) == 2


async def test_a_server_that_starts_again_keeps_its_leases(path: Path) -> None:
    async with opened(path) as stage:
        lease = await stage.run_job()
    async with opened(path) as stage:
        assert (await stage.settle(lease)).loss is None


async def test_a_file_that_a_server_has_open_is_left_alone(path: Path) -> None:
    async with opened(path) as stage:
        lease = await stage.run_job()
        said = await asyncio.to_thread(CliRunner().invoke, ROOT, ["db", "restored", "--data", str(path.parent)])
        assert said.exit_code != 0
        assert (await stage.settle(lease)).loss is None


def test_no_database_is_made_where_there_is_none(path: Path) -> None:
    said = CliRunner().invoke(ROOT, ["db", "restored", "--data", str(path.parent)])
    assert said.exit_code != 0
    assert not path.exists()


async def test_jobs_that_run_during_an_upgrade_settle_afterwards(path: Path) -> None:
    job = new_job_id(1, ShardId(0), random.Random(7))
    make_database_before_epochs(path, job)
    async with opened(path) as stage:
        assert (await stage.settle(Lease(job, 3))).loss is None
        found = await stage.job(job)
        assert (found.state, found.fence, found.attempt) == (State.SUCCEEDED, 3, 2)


def make_database_before_epochs(path: Path, job: JobId) -> None:
    """With that job running."""
    path.parent.mkdir()
    with apsw.Connection(str(path)) as connection:
        for number, script in migrations().items():
            if number <= BEFORE_EPOCHS:
                connection.execute(script)
                connection.pragma("user_version", number)
        connection.execute("INSERT INTO shard (number, probed_at) VALUES (0, 0)")
        connection.execute(RUNNING, {"id": to_bytes(job)})
        connection.execute("INSERT INTO counts (queue, type, state, jobs) VALUES ('mail', 'mail', 'running', 1)")
    connection.close()


RUNNING = """
INSERT INTO jobs (
    id, type, queue, state, priority, due_at, created_at, started_at, lease_until, worker, attempt, fence
)
VALUES (:id, 'mail', 'mail', 'running', 5, 0, 0, 0, 32503679999999, 'w1', 2, 3)
"""
