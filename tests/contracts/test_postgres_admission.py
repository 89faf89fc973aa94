"""Closing a database to new jobs, and changing its ring, beside transactions that have not ended."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from penstock.model.errors import Conflict
from penstock.model.job import JobFilter, NewJob
from penstock.model.notices import Notice, NoticeKind
from penstock.model.shards import Ring
from penstock.model.submission import Known, Misplaced
from penstock.store.postgres import PostgresStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import TICKET, StoreStage
from tests.postgres import VERSIONS, LockWaits, database, new_store

SUBMIT = "SELECT penstock.submit('mail', allow_unknown => true)"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


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


async def jobs(store: PostgresStore) -> int:
    return len((await store.page(JobFilter(), None, 99)).jobs)


async def test_closed_sql_submits_are_refused_too(store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
    await store.admit(jobs=False)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="takes no more jobs"):
        connection.execute(SUBMIT)
    connection.rollback()
    await store.admit(jobs=True)
    connection.execute(SUBMIT)
    connection.commit()
    assert await jobs(store) == 1


async def test_a_shard_is_not_closed_while_a_transaction_that_has_submitted_is_open(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(SUBMIT)
    with pytest.raises(Conflict, match="has submitted jobs and is still open"):
        await store.admit(jobs=False)
    connection.commit()
    await store.admit(jobs=False)
    assert await jobs(store) == 1


async def test_a_transaction_with_an_older_snapshot_cannot_submit_into_a_closed_shard(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT count(*) FROM penstock.jobs")
    await store.admit(jobs=False)
    with pytest.raises(psycopg.errors.SerializationFailure):
        connection.execute(SUBMIT)
    connection.rollback()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        connection.execute(SUBMIT)
    connection.rollback()
    assert await jobs(store) == 0


async def test_what_was_taken_before_the_close_can_be_seen_after_it(
    store: PostgresStore, stage: StoreStage, connection: psycopg.Connection[Any], version: int
) -> None:
    """The close waits for one that has submitted; a submit that comes behind it waits too, and is refused."""
    connection.execute(SUBMIT)
    waits = LockWaits(database(version))
    closing = asyncio.ensure_future(store.admit(jobs=False))
    await waits.next()
    late = stage.new()
    submitting = asyncio.ensure_future(store.submit([late], TICKET))
    await waits.next()
    connection.commit()
    await closing
    assert await submitting == [Misplaced(late)]
    assert await jobs(store) == 1


async def test_a_ring_is_not_told_past_a_transaction_that_has_submitted(
    store: PostgresStore, connection: psycopg.Connection[Any]
) -> None:
    ring = Notice(NoticeKind.RING, "ring", msgspec.json.encode(Ring((store.shard,))), await store.now())
    connection.execute(SUBMIT)
    with pytest.raises(Conflict):
        await store.put_notices([ring])
    assert await store.notices() == []
    connection.rollback()
    await store.put_notices([ring])
    assert len(await store.notices()) == 1


async def test_many_processes_submit_while_the_shard_is_closed_and_all_that_was_acknowledged_is_there(
    store: PostgresStore, stage: StoreStage, version: int
) -> None:
    others = [await PostgresStore.open(database(version)) for _ in range(3)]
    taken: list[str] = []
    refused: list[NewJob] = []
    enough = asyncio.Event()

    async def submit(other: PostgresStore) -> None:
        while not refused:
            news = [stage.new(), stage.new(key=f"k{stage.rng.getrandbits(60)}")]
            for new, answer in zip(news, await other.submit(news, TICKET), strict=True):
                if isinstance(answer, Misplaced):
                    refused.append(new)
                else:
                    taken.append(answer.id)
            if len(taken) > 100:
                enough.set()

    async def close() -> set[str]:
        await enough.wait()
        await store.admit(jobs=False)
        page = await store.page(JobFilter(), None, 100_000)
        return {job.id for job in page.jobs}

    async with asyncio.timeout(60):
        *_, seen = await asyncio.gather(*map(submit, others), close())
    assert seen == set(taken)
    for other in others:
        await other.close()


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "in a batch"])
async def test_a_key_is_not_taken_for_an_id_that_is_in_use(
    store: PostgresStore, stage: StoreStage, beside: int
) -> None:
    running, ended = await stage.submit(), await stage.submit()
    await store.cancel([ended.id])
    for job in (running, ended):
        asked = stage.new(id=job.id, key=f"k-{job.id}", fingerprint=b"1")
        answer, *_ = await store.submit([asked, *(stage.new(tags=("red",)) for _ in range(beside))], TICKET)
        assert isinstance(answer, Known)
        assert answer.id == job.id
    assert await jobs(store) == 2 + 2 * beside
