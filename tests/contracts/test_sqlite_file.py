"""What the SQLite store promises about its file: durable, owned by one process, honest when it cannot write."""

import asyncio
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from penstock.model.clock import LATEST, to_millis
from penstock.model.errors import Invalid, StoreUnavailable
from penstock.model.ids import JobId, ShardId, new_job_id, to_bytes
from penstock.model.job import Retention
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.connection import migrations, open_reader
from penstock.store.sqlite.writer import CHECKPOINT_PAGES
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.schedules import put, tick
from penstock.testing.store_contract.stage import TICKET, StoreStage

LARGE = b'"' + b"x" * 4000 + b'"'

SUBMITTER = """
import asyncio, pathlib, random, sys
from penstock.model.ids import new_job_id
from penstock.model.job import NewJob
from penstock.model.clock import SystemClock, seconds, to_millis
from penstock.store.sqlite import SqliteStore

async def submit(store, chance):
    while True:
        new = [NewJob(id=new_job_id(1, store.shard, chance), type="mail", queue="mail") for _ in range(3)]
        for answer in await store.submit(new, seconds(30)):
            print(answer.job.id, flush=True)

async def main():
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]))
    chance = random.Random(5)
    await asyncio.gather(*(submit(store, chance) for _ in range(8)))

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, clock=SimulatedClock())
    yield store
    await store.close()


@pytest.fixture
def stage(store: SqliteStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


@contextmanager
def submitter(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that submits jobs and prints the ids of those acknowledged, until it is killed."""
    command = [sys.executable, "-c", SUBMITTER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def text_file(path: Path) -> Path:
    path.write_text("hello " * 999)
    return path


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def size(path: Path) -> int:
    return path.stat().st_size


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_concurrent_calls_share_commits(store: SqliteStore, stage: StoreStage) -> None:
    before = store.writer.commits
    await asyncio.gather(*(stage.submit() for _ in range(64)))
    assert 1 <= store.writer.commits - before <= 16


async def test_a_call_that_breaks_an_invariant_fails_alone(store: SqliteStore, stage: StoreStage) -> None:
    good = [store.submit([stage.new()], TICKET) for _ in range(5)]
    bad = store.submit([stage.new(), stage.new(priority=99)], TICKET)
    *kept, error = await asyncio.gather(*good, bad, return_exceptions=True)
    assert isinstance(error, Invalid)
    assert not any(isinstance(one, BaseException) for one in kept)
    assert len(await stage.all_jobs()) == 5
    assert await stage.read_counts() == await stage.count_jobs()


async def test_nothing_of_a_group_that_was_undone_is_done_twice(store: SqliteStore, stage: StoreStage) -> None:
    """A claim in one commit with a call that breaks an invariant is undone with it, and then done by itself."""
    job = await stage.submit()
    go_on = threading.Event()
    held = asyncio.ensure_future(store.writer.run(lambda _: go_on.wait()))
    claiming = asyncio.ensure_future(stage.claim(job.id))
    refused = asyncio.ensure_future(store.submit([stage.new(priority=99)], TICKET))
    # All of them are in the writer's hands before it goes on.
    await asyncio.wait([held, claiming, refused], timeout=0)
    go_on.set()
    await asyncio.wait([held, claiming, refused])
    assert [(claim.fence, claim.attempt) for claim in claiming.result()] == [(1, 1)]
    assert isinstance(refused.exception(), Invalid)
    assert await stage.read_counts() == await stage.count_jobs()


async def test_a_caller_that_goes_away_disturbs_no_other(store: SqliteStore, stage: StoreStage) -> None:
    calls = [asyncio.ensure_future(stage.submit()) for _ in range(9)]
    await asyncio.wait(calls[:1], timeout=0)
    calls[3].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, BaseException) for one in done].count(True) == 1


async def test_what_was_acknowledged_survives_kill_9(path: Path) -> None:
    with submitter(path) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(500)]
        child.send_signal(signal.SIGKILL)
        acknowledged += child.stdout.readlines()
    jobs = [JobId(line.strip()) for line in acknowledged if line.endswith("\n")]
    store = await SqliteStore.open(path)
    found = await store.get(jobs)
    counted = sum(count.jobs for count in await store.counts())
    await store.close()
    assert None not in found
    assert counted >= len(jobs) >= 500


async def test_a_file_is_owned_by_one_process(path: Path) -> None:
    with submitter(path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StoreUnavailable, match=f"process {child.pid}.*--data"):
            await SqliteStore.open(path)


async def test_a_file_is_opened_once_in_a_process(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"process {os.getpid()}"):
        await SqliteStore.open(path)


async def test_a_closed_file_can_be_opened_again_and_holds_everything(path: Path) -> None:
    clock = SimulatedClock()
    store = await SqliteStore.open(path, clock=clock)
    stage = StoreStage(store, clock)
    await stage.submit(tags=("red",), key="k")
    await stage.run_job()
    jobs, counted = await stage.all_jobs(), await store.counts()
    await store.close()
    again = await SqliteStore.open(path, clock=clock)
    assert (await StoreStage(again, clock).all_jobs(), await again.counts()) == (jobs, counted)
    await again.close()


async def test_the_file_is_readable_by_its_owner_only(store: SqliteStore, stage: StoreStage, path: Path) -> None:
    await stage.submit()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


async def test_a_database_newer_than_the_code_is_refused(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    with apsw.Connection(str(path)) as connection:
        connection.pragma("user_version", 999)
    connection.close()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"schema 999.*newer Penstock"):
            await SqliteStore.open(path)


async def test_a_database_from_before_schedules_is_brought_up_to_date(path: Path) -> None:
    clock = SimulatedClock()
    waiting, ended = (new_job_id(number, ShardId(0), random.Random(number)) for number in (1, 2))
    database_of_schema_1(path, waiting, ended, to_millis(clock.now()))
    store = await SqliteStore.open(path, clock=clock)
    stage = StoreStage(store, clock)
    kept = await stage.job(waiting)
    assert (kept.type, kept.params, kept.tags, kept.timeout) == ("mail", b'{"to":1}', ("red",), timedelta(seconds=9))
    assert (kept.schedule, kept.tick_at, kept.interval) == (None, None, None)
    assert [job.id for job in await stage.all_jobs()] == [ended, waiting]
    assert await stage.read_counts() == await stage.count_jobs()
    assert [claim.job for claim in await stage.claim(waiting, ended)] == [waiting]
    await tick(stage, await put(stage))
    assert len(await stage.all_jobs()) == 3
    await store.close()


async def test_instants_that_were_kept_before_they_had_a_range_are_brought_into_it(path: Path) -> None:
    waiting, ended = (new_job_id(number, ShardId(0), random.Random(number)) for number in (1, 2))
    database_of_schema_1(path, waiting, ended, 10**15)
    store = await SqliteStore.open(path, clock=SimulatedClock())
    stage = StoreStage(store, SimulatedClock())
    assert [job.due_at for job in await stage.all_jobs()] == [LATEST, LATEST]
    assert [claim.job for claim in await stage.claim(waiting)] == [waiting]
    with apsw.Connection(str(path)) as connection:
        assert connection.pragma("integrity_check") == "ok"
    connection.close()
    await store.close()


async def test_a_row_out_of_range_is_read_cancelled_and_pruned_like_any_other(
    store: SqliteStore, stage: StoreStage, path: Path
) -> None:
    kept, spoilt = await stage.submit(), await stage.submit(delay=timedelta(hours=1))
    with apsw.Connection(str(path)) as connection:
        connection.pragma("ignore_check_constraints", True)
        connection.execute(
            "UPDATE jobs SET due_at = 1 << 62, expires_at = 1 << 62 WHERE id = ?", (to_bytes(spoilt.id),)
        )
    connection.close()
    assert [job.id for job in await stage.all_jobs()] == [spoilt.id, kept.id]
    assert (await stage.job(spoilt.id)).due_at == LATEST
    assert (await store.due_summary()).next_due_at == LATEST
    (cancelled,) = await store.cancel([spoilt.id])
    assert cancelled.event is not None
    assert (await store.prune(Retention(timedelta(0), timedelta(0)), 9)).jobs == 1
    assert [job.id for job in await stage.all_jobs()] == [kept.id]


def database_of_schema_1(path: Path, waiting: JobId, ended: JobId, now: int) -> None:
    """A file as the first release of the schema left it, with two jobs."""
    path.parent.mkdir(parents=True)
    with apsw.Connection(str(path)) as connection:
        connection.execute(migrations()[1])
        connection.pragma("user_version", 1)
        connection.execute("INSERT INTO shard VALUES (0, 0)")
        for job, state, completed_at in ((waiting, "queued", None), (ended, "succeeded", now)):
            connection.execute(
                "INSERT INTO jobs (id, type, queue, state, priority, due_at, created_at, completed_at, timeout, tags,"
                " params) VALUES (?, 'mail', 'mail', ?, 5, ?, ?, ?, 9000, ?, ?)",
                (to_bytes(job), state, now, now, completed_at, '["red"]', b'{"to":1}'),
            )
            connection.execute("INSERT INTO counts VALUES ('mail', 'mail', ?, 1)", (state,))
    connection.close()


async def test_the_file_of_another_shard_is_refused(path: Path) -> None:
    await (await SqliteStore.open(path, shard=ShardId(3))).close()
    with pytest.raises(StoreUnavailable, match="holds shard 3, not 0"):
        await SqliteStore.open(path)


async def test_what_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = text_file(tmp_path / "jobs.db")
    with pytest.raises(StoreUnavailable, match=r"jobs\.db"):
        await SqliteStore.open(path)


async def test_a_full_disk_acknowledges_nothing_and_is_recovered_from(
    store: SqliteStore, stage: StoreStage, path: Path
) -> None:
    kept = [await stage.submit() for _ in range(9)]
    with files_up_to(size(wal_of(path)) + 100_000):
        calls = [store.submit([stage.new(params=LARGE) for _ in range(20)], TICKET) for _ in range(9)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert refused
        assert all(isinstance(error, StoreUnavailable) for error in refused)
        acknowledged = [one.job for answer in answers if not isinstance(answer, BaseException) for one in answer]
        assert {job.id for job in await stage.all_jobs()} == {job.id for job in kept + acknowledged}
    await store.probe()
    after = await stage.submit(params=LARGE)
    assert len(await stage.all_jobs()) == len(kept + acknowledged) + 1
    assert await stage.job(after.id) == after
    assert await stage.read_counts() == await stage.count_jobs()


async def test_a_disk_that_refuses_submits_is_not_well_although_a_probe_would_fit(
    store: SqliteStore, stage: StoreStage, path: Path
) -> None:
    await store.probe()
    kept = await stage.submit()
    with files_up_to(size(wal_of(path)) + 3 * 4096):
        await store.probe()
        with pytest.raises(StoreUnavailable):
            await stage.submit(params=LARGE * 10)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.probe()
    await store.probe()
    assert await store.writer.run(lambda tx: tx.connection.execute("SELECT count(*) FROM ballast").get) == 0
    assert await stage.all_jobs() == [kept]


async def test_a_store_that_opens_on_a_full_disk_is_not_well(store: SqliteStore, stage: StoreStage, path: Path) -> None:
    await stage.submit()
    with files_up_to(size(wal_of(path)) + 3 * 4096), pytest.raises(StoreUnavailable):
        await store.probe()
    await store.probe()


async def test_a_full_database_refuses_the_whole_batch(store: SqliteStore, stage: StoreStage) -> None:
    kept = await stage.submit()
    await store.writer.run(lambda tx: tx.connection.pragma("max_page_count", 1))
    with pytest.raises(StoreUnavailable, match="full"):
        await store.submit([stage.new(params=LARGE) for _ in range(99)], TICKET)
    assert await stage.all_jobs() == [kept]
    assert len(await store.submit([stage.new()], TICKET)) == 1


async def test_a_read_only_database_is_unavailable_for_writing(store: SqliteStore, stage: StoreStage) -> None:
    kept = await stage.submit()
    await store.writer.run(lambda tx: tx.connection.pragma("query_only", True))
    with pytest.raises(StoreUnavailable):
        await store.probe()
    assert await stage.all_jobs() == [kept]


async def test_the_write_ahead_log_does_not_grow_without_bound(
    store: SqliteStore, stage: StoreStage, path: Path
) -> None:
    for _ in range(30):
        await store.submit([stage.new(params=LARGE) for _ in range(250)], TICKET)
    assert size(wal_of(path)) < 4 * CHECKPOINT_PAGES * 4096
    assert size(path) > 10_000_000


async def test_a_reader_cannot_write(store: SqliteStore, path: Path) -> None:
    reader = open_reader(path)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM jobs")
    reader.close()
