"""The journal of a PostgreSQL shard among concurrent transactions: nothing is missed, out of order, or held up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from penstock.model.clock import EARLIEST, LATEST
from penstock.model.ids import JobId
from penstock.model.job import Lease, Retention, Settlement
from penstock.model.journal import EventRetention, HistoryFilter, Position, RelayState, RelayWrite
from penstock.model.lifecycle import State
from penstock.store.journal import relay_role
from penstock.store.postgres import PostgresStore, journal
from penstock.store.postgres.connection import Connector, PostgresAddress
from penstock.store.postgres.leases import cancel
from penstock.store.postgres.sessions import NUMBER_EVERY
from penstock.store.postgres.statements import Session
from penstock.store.seam import Share
from penstock.testing.clock import SimulatedClock
from penstock.testing.journal import JournalReader, depths, read_all_history
from penstock.testing.store_contract.schedules import put, tick
from penstock.testing.store_contract.stage import LEASE, SECOND, TICKET, StoreStage
from tests.postgres import VERSIONS, LockWaits, database, new_store, server

LONG = 60
SUBMIT = "SELECT penstock.submit('mail', allow_unknown => true)::text"
HEAD = "SELECT xmin::text, xmax::text, ctid::text FROM penstock.journal_head"
HOLD_HEAD = "SELECT FROM penstock.journal_head FOR UPDATE"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
async def store(version: int) -> AsyncIterator[PostgresStore]:
    async with new_store(version, None) as store:
        yield store


@pytest.fixture
def stage(store: PostgresStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


@pytest.fixture
def connection(store: PostgresStore, version: int) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database(version)) as connection:
        yield connection


def submit_in(connection: psycopg.Connection[Any]) -> JobId:
    ((job,),) = connection.execute(SUBMIT).fetchall()
    return JobId(job)


async def test_a_transaction_left_open_delays_no_event_and_its_own_comes_after_its_commit(
    stage: StoreStage, connection: psycopg.Connection[Any]
) -> None:
    reader = JournalReader(stage.store)
    late = submit_in(connection)
    others = [(await stage.submit()).id for _ in range(3)]
    await reader.read()
    assert list(reader.told) == others
    connection.commit()
    after = (await stage.submit()).id
    found = await reader.read()
    assert [list(entry.jobs) for entry in found] == [[late], [after]]
    numbers = [entry.number for entry in reader.entries]
    assert numbers == list(range(1, 6))


async def test_a_transaction_that_is_rolled_back_leaves_no_event_and_no_gap(
    stage: StoreStage, connection: psycopg.Connection[Any]
) -> None:
    first = (await stage.submit()).id
    submit_in(connection)
    connection.rollback()
    second = (await stage.submit()).id
    reader = JournalReader(stage.store)
    assert [(entry.number, list(entry.jobs)) for entry in await reader.read()] == [(1, [first]), (2, [second])]


async def test_the_moves_of_a_job_are_in_order_where_one_waits_for_the_other(
    stage: StoreStage, store: PostgresStore, version: int
) -> None:
    """An entry gets its id after all locks of its statement, so after the move that it had waited for."""
    lease = await stage.run_job()
    waits = LockWaits(database(version))
    async with other_session(version) as session:
        async with session.connection.transaction():
            await cancel(session, [lease.job], force=False)
            settling = asyncio.create_task(
                store.settle([Settlement(job=lease.job, fence=lease.fence, state=State.SUCCEEDED)])
            )
            await waits.next()
            await stage.submit()
        await settling
    reader = JournalReader(store)
    await reader.read()
    assert [told.version for told in reader.told[lease.job]] == [1, 2, 3, 4]
    reader.check(await stage.all_jobs())


async def test_several_processes_number_at_once_without_gap_or_double(store: PostgresStore, version: int) -> None:
    url, stage = database(version), StoreStage(store, SimulatedClock())
    others = [await PostgresStore.open(url) for _ in range(3)]
    done = asyncio.Event()

    async def number(one: PostgresStore) -> None:
        while not done.is_set():
            await one.number_entries()

    async def live(one: PostgresStore) -> None:
        for _ in range(60):
            answers = await one.submit([stage.new() for _ in range(3)], TICKET)
            claims = await one.claim_next([Share("mail", ("mail",), 3)], "w", LEASE)
            await one.release([Lease(claim.job, claim.fence) for claim in claims])
            await one.cancel([answers[0].id])

    async with asyncio.timeout(LONG):
        numberers = [asyncio.create_task(number(one)) for one in (store, *others) for _ in range(2)]
        await asyncio.gather(*(live(one) for one in (store, *others)))
        done.set()
        await asyncio.gather(*numberers)
    reader = JournalReader(store)
    await reader.read()
    numbers = [entry.number for entry in reader.entries]
    assert numbers == list(range(1, len(numbers) + 1))
    reader.check(await stage.all_jobs())
    assert await stage.read_counts() == await stage.count_jobs()
    assert depths(await read_all_history(store)) == {}
    for one in others:
        await one.close()


async def test_readers_beside_writers_miss_nothing(store: PostgresStore, version: int) -> None:
    """What a reader has read once is all there is up to there, whatever commits later."""
    stage, other = StoreStage(store, SimulatedClock()), await PostgresStore.open(database(version))
    readers = [JournalReader(one) for one in (store, other)]
    done = asyncio.Event()

    async def read(reader: JournalReader) -> None:
        while not done.is_set():
            await reader.read(5)

    async def submit() -> None:
        for _ in range(40):
            await store.submit([stage.new() for _ in range(2)], TICKET)

    async def submit_in_sql() -> None:
        async with await psycopg.AsyncConnection.connect(database(version)) as connection:
            for _ in range(40):
                await connection.execute(SUBMIT)
                await store.number_entries()
                await connection.commit()

    async with asyncio.timeout(LONG):
        reading = [asyncio.create_task(read(reader)) for reader in readers]
        await asyncio.gather(submit(), submit(), submit_in_sql(), submit_in_sql())
        done.set()
        await asyncio.gather(*reading)
    jobs = await stage.all_jobs()
    assert len(jobs) == 240
    for reader in readers:
        await reader.read()
        assert all(earlier.number + 1 == later.number for earlier, later in pairwise(reader.entries))
        reader.check(jobs)
    await other.close()


async def test_while_another_process_numbers_a_call_returns_at_once(
    stage: StoreStage, connection: psycopg.Connection[Any]
) -> None:
    await stage.submit()
    assert await stage.store.shards()[0].number_entries() == 1
    connection.execute(HOLD_HEAD)
    await stage.submit()
    assert await stage.store.shards()[0].number_entries() == 1
    connection.commit()
    assert await stage.store.shards()[0].number_entries() == 2


async def test_to_number_what_has_a_number_writes_nothing(
    stage: StoreStage, store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    await stage.submit()
    await store.number_entries()
    before = connection.execute(HEAD).fetchall()
    connection.commit()
    assert await store.number_entries() == 1
    assert connection.execute(HEAD).fetchall() == before


async def test_more_entries_than_one_transaction_numbers(
    stage: StoreStage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "NUMBERED_AT_ONCE", 3)
    for _ in range(7):
        await stage.submit()
    assert await store.number_entries() == 7
    monkeypatch.setattr(journal, "ROUNDS", 1)
    for _ in range(7):
        await stage.submit()
    assert [await store.number_entries() for _ in range(4)] == [10, 13, 14, 14]
    assert depths(await read_all_history(store)) == {}


async def test_a_process_that_writes_numbers_by_itself(stage: StoreStage, version: int) -> None:
    """Without any scheduler what has no number stays little."""
    other = await PostgresStore.open(database(version))
    for _ in range(NUMBER_EVERY):
        await other.submit([stage.new()], TICKET)
    await other.close()
    with psycopg.connect(database(version)) as connection:
        ((fresh,),) = connection.execute("SELECT count(*) FROM penstock.journal WHERE number IS NULL").fetchall()
    assert fresh < NUMBER_EVERY


async def test_an_instant_is_found_although_late_commits_are_out_of_order(version: int) -> None:
    """After the number that is found there is everything from that instant on."""
    clock = SimulatedClock()
    async with new_store(version, clock) as store:
        stage = StoreStage(store, clock)
        with psycopg.connect(database(version)) as connection:
            # Dated by the server, whose clock is years behind this one.
            submit_in(connection)
            await stage.submit()
            await store.number_entries()
        clock.advance(SECOND)
        await store.number_entries()
        await stage.submit()
        await store.number_entries()
        first, late, last = [entry.at for entry in (await store.read_journal(0, 99)).entries]
        assert late < first < last
        assert [await store.find_number(at) for at in (late, first, last, last + SECOND)] == [0, 0, 2, 3]


async def test_late_entries_stay_as_long_as_what_was_numbered_before_them(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    """Whatever is pruned is the beginning of the journal: there is no gap behind `oldest`."""
    stage = StoreStage(store, SimulatedClock())
    for _ in range(3):
        await stage.submit()
    await store.number_entries()
    connection.execute("UPDATE penstock.journal SET at = 0 WHERE number = 2")
    connection.commit()
    assert await store.prune_journal(EventRetention(), 99) == 0
    assert [entry.number for entry in (await store.read_journal(0, 99)).entries] == [1, 2, 3]


async def test_without_events_a_submit_in_sql_is_counted_and_nothing_stays(version: int) -> None:
    async with new_store(version, None, keep_events=False) as store:
        with psycopg.connect(database(version)) as connection:
            submit_in(connection)
        assert [count.jobs for count in await store.counts()] == [1]
        assert await store.number_entries() == 0
        assert [count.jobs for count in await store.counts()] == [1]
        assert (await store.read_history(HistoryFilter(EARLIEST, LATEST))).rows == []
        with psycopg.connect(database(version)) as connection:
            assert connection.execute("SELECT count(*) FROM penstock.journal").fetchall() == [(0,)]
    async with new_store(version, None) as store:
        with psycopg.connect(database(version)) as connection:
            job = submit_in(connection)
        reader = JournalReader(store)
        await reader.read()
        assert list(reader.told) == [job]


async def test_a_role_that_just_passes_to_another_holder_is_waited_for(
    store: PostgresStore, connection: psycopg.Connection[Any], version: int
) -> None:
    """Between the look at the fence and the write there is no room for a new holder."""
    role = relay_role("orders")
    fence = await store.acquire_role(role, "me", SECOND)
    assert fence is not None
    waits = LockWaits(database(version))
    connection.execute("UPDATE penstock.roles SET holder = 'another', fence = fence + 1 WHERE role = %s", [role])
    write = RelayWrite(state=RelayState(position=Position(9)))
    saving = asyncio.create_task(store.save_relay("orders", fence, write))
    await waits.next()
    connection.commit()
    assert not await saving
    assert await store.relay_state("orders") == RelayState()
    assert await store.save_relay("orders", fence + 1, write)


Step = Callable[[StoreStage], Awaitable[Any]]


async def _submit_keyed(stage: StoreStage) -> None:
    await stage.store.submit([stage.new(key="k", fingerprint=b"a"), stage.new()], TICKET)


async def _submit_one(stage: StoreStage) -> None:
    await stage.submit(key="k", fingerprint=b"a")


async def _claim_next(stage: StoreStage) -> None:
    await stage.submit()
    await stage.store.claim_next([Share("mail", ("mail",), 9)], "w", LEASE)


async def _claim_merged(stage: StoreStage) -> None:
    await stage.store.submit([stage.new(type=kind) for kind in ("mail", "scan")], TICKET)
    await stage.claim_next({"mail": 9}, "mail", "scan")


async def _prune(stage: StoreStage) -> None:
    await stage.end_job()
    stage.clock.advance(timedelta(days=1))
    await stage.sweeps.prune(Retention(SECOND, SECOND), 9)


async def _prune_anchor(stage: StoreStage) -> None:
    job = await stage.submit(key="k", fingerprint=b"a", anchor=True)
    await stage.store.cancel([job.id])
    stage.clock.advance(timedelta(days=2))
    await stage.sweeps.prune(Retention(SECOND, SECOND), 9)


async def _retype(stage: StoreStage) -> None:
    await stage.store.retype([await stage.run_job()], "scan")


async def _tick(stage: StoreStage) -> None:
    await tick(stage, await put(stage))


STEPS: dict[str, Step] = {
    "submit_keyed": _submit_keyed,
    "submit_one": _submit_one,
    "claim_next": _claim_next,
    "claim_merged": _claim_merged,
    "prune": _prune,
    "prune_anchors": _prune_anchor,
    "retype": _retype,
    "tick": _tick,
}
"""Statements that the walks of the contract do not come by, or that are no moves."""


@pytest.mark.parametrize("name", STEPS)
async def test_every_statement_that_changes_a_count_writes_what_it_did(version: int, name: str) -> None:
    clock = SimulatedClock()
    async with new_store(version, clock) as store:
        stage = StoreStage(store, clock)
        await STEPS[name](stage)
        assert await stage.read_counts() == await stage.count_jobs()
        reader = JournalReader(store)
        await reader.read()
        reader.check(await stage.all_jobs())
        assert depths(await read_all_history(store)) == {}
        assert await stage.read_counts() == await stage.count_jobs()


async def test_what_a_dropped_partition_held_is_dated(version: int) -> None:
    clock = SimulatedClock()
    url = await asyncio.to_thread(server(version).database, "dated")
    store = await PostgresStore.open(url, clock=clock)
    await StoreStage(store, clock).end_job()
    clock.advance(timedelta(days=40))
    assert (await store.prune(Retention(SECOND, SECOND), 0)).jobs == 1
    history = await read_all_history(store)
    assert Counter(row.move for row in history.rows)["prune"] == 1
    assert (list(history.counts), depths(history)) == ([], {})
    await store.close()


@asynccontextmanager
async def other_session(version: int) -> AsyncIterator[Session]:
    address = PostgresAddress.parse(database(version))
    async with await Connector(address, timedelta(seconds=LONG)).connect() as connection:
        yield Session(connection, None, keep_events=True)
