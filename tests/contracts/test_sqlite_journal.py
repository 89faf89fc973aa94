"""The journal in a file: entries outlive the process, numbers their entries, and each entry is added up once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from penstock.model.clock import EARLIEST, LATEST
from penstock.model.job import Lease, Ticket
from penstock.model.journal import EventRetention, HistoryFilter
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.history import add_history, sum_entries
from penstock.store.sqlite.leases import cancel, claim, release
from penstock.store.sqlite.transaction import SqliteTransaction
from penstock.testing.clock import SimulatedClock
from penstock.testing.journal import JournalReader
from penstock.testing.store_contract.stage import MINUTE, SECOND, StoreStage

EVERYTHING = HistoryFilter(EARLIEST, LATEST)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path, clock: SimulatedClock) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, clock=clock)
    yield store
    await store.close()


async def test_entries_and_history_outlive_the_process(path: Path, clock: SimulatedClock) -> None:
    store = await SqliteStore.open(path, clock=clock)
    await StoreStage(store, clock).end_job()
    before = await store.read_journal(0, 99), await store.read_history(EVERYTHING)
    await store.close()
    again = await SqliteStore.open(path, clock=clock)
    assert (await again.read_journal(0, 99), await again.read_history(EVERYTHING)) == before
    await again.close()


async def test_no_number_is_given_again_after_everything_was_pruned(path: Path, clock: SimulatedClock) -> None:
    store = await SqliteStore.open(path, clock=clock)
    await StoreStage(store, clock).end_job()
    head = await store.number_entries()
    clock.advance(MINUTE)
    await store.prune_journal(EventRetention(events=SECOND), 99)
    await store.close()
    again = await SqliteStore.open(path, clock=clock)
    assert await again.number_entries() == head
    await StoreStage(again, clock).submit()
    assert [entry.number for entry in (await again.read_journal(0, 99)).entries] == [head + 1]
    await again.close()


async def test_an_instant_between_two_milliseconds_is_after_the_first(
    store: SqliteStore, clock: SimulatedClock
) -> None:
    await StoreStage(store, clock).submit()
    assert await store.find_number(clock.now() + timedelta(microseconds=1)) == 1
    assert await store.find_number(clock.now()) == 0


async def test_what_is_not_in_the_history_is_not_pruned(store: SqliteStore, clock: SimulatedClock) -> None:
    stage = StoreStage(store, clock)
    await stage.submit()
    await store.number_entries()
    await stage.submit()
    await store.prune_journal(EventRetention(events=-SECOND), 99)
    assert [entry.number for entry in (await store.read_journal(0, 99)).entries] == [2]
    assert sum(row.jobs for row in (await store.read_history(EVERYTHING)).rows) == 2


async def test_entries_that_two_readers_have_added_up_are_added_once(store: SqliteStore, clock: SimulatedClock) -> None:
    await StoreStage(store, clock).end_job()

    def add(tx: SqliteTransaction) -> int:
        head, sums, _ = sum_entries(tx.connection, 0, 99)
        return add_history(tx, folded=0, head=head, sums=sums)

    assert [await store.writer.run(add), await store.writer.run(add)] == [3, 3]
    assert sum(row.jobs for row in (await store.read_history(EVERYTHING)).rows) == 3


async def test_the_history_is_written_at_most_once_a_second(store: SqliteStore, clock: SimulatedClock) -> None:
    stage = StoreStage(store, clock)
    await stage.submit()
    await store.number_entries()
    commits = store.writer.commits
    await stage.submit()
    for _ in range(5):
        assert await store.number_entries() == 2
    assert store.writer.commits == commits + 1
    clock.advance(SECOND)
    await store.number_entries()
    assert store.writer.commits == commits + 2
    clock.advance(SECOND)
    await store.number_entries()
    assert store.writer.commits == commits + 2


async def test_a_commit_with_a_call_that_is_refused_tells_only_of_the_others(
    store: SqliteStore, clock: SimulatedClock
) -> None:
    """The calls are committed together, then one by one: what the first try noted must not be written."""
    stage = StoreStage(store, clock)
    calls = [partial(stage.submit, priority=99 if number == 3 else 5) for number in range(6)]
    answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert sum(isinstance(answer, Exception) for answer in answers) == 1
    reader = JournalReader(store)
    await reader.read()
    reader.check(await stage.all_jobs())
    assert len(reader.told) == 5


async def test_a_job_that_is_moved_often_in_one_commit_is_told_of_in_order(
    store: SqliteStore, clock: SimulatedClock
) -> None:
    stage = StoreStage(store, clock)
    job = (await stage.submit()).id

    def move_often(tx: SqliteTransaction) -> None:
        for fence in range(1, 4):
            claim(tx, [(Ticket(store.shard, job, "mail", "mail"), "w1", MINUTE)])
            release(tx, [(Lease(job, fence), False, None)])

    await store.writer.run(move_often)
    reader = JournalReader(store)
    await reader.read()
    reader.check(await stage.all_jobs())
    assert [told.version for told in reader.told[job]] == [1, 2, 3, 4, 5, 6, 7]


async def test_calls_that_do_the_same_in_one_commit_share_an_entry(store: SqliteStore, clock: SimulatedClock) -> None:
    stage = StoreStage(store, clock)
    jobs = [(await stage.submit()).id for _ in range(3)]

    def cancel_each(tx: SqliteTransaction) -> None:
        for job in jobs:
            cancel(tx, [job], force=False)

    await store.writer.run(cancel_each)
    assert [list(entry.jobs) for entry in (await store.read_journal(3, 99)).entries] == [jobs]


async def test_an_entry_is_small(store: SqliteStore, clock: SimulatedClock) -> None:
    """Jobs that went the same way share their version, attempt and span."""
    stage = StoreStage(store, clock)
    await store.submit([stage.new() for _ in range(500)], MINUTE)
    await stage.claim_next({"mail": 500})

    def packed(tx: SqliteTransaction) -> int:
        columns = "length(ids) + length(versions) + length(attempts) + coalesce(length(spans), 0)"
        return int(tx.connection.execute(f"SELECT sum({columns}) FROM journal").get)  # noqa: S608 - columns of ours

    assert await store.writer.run(packed) < 1000 * 16.1
