"""Ticks in PostgreSQL beyond the contract: many schedulers at once, tables that refuse, and which indexes are read."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from penstock.model.lifecycle import State
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.schedules import ACTIVE_MAX
from penstock.store.postgres.statements import load
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.schedules import job_of, move_of, put
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, StoreStage
from tests.postgres import WHOLE_INDEXES, database, new_store


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with new_store(18, SimulatedClock()) as store:
        yield store


@pytest.fixture
def stage(store: PostgresStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


@pytest.fixture
async def schedulers(store: PostgresStore) -> AsyncIterator[list[PostgresStore]]:
    """Four processes, as far as the database can tell."""
    async with AsyncExitStack() as undo:
        opened = [await PostgresStore.open(database(18), clock=SimulatedClock()) for _ in range(4)]
        for one in opened:
            undo.push_async_callback(one.close)
        yield opened


async def test_of_many_schedulers_with_one_reading_one_ticks_each_schedule(
    stage: StoreStage, schedulers: list[PostgresStore]
) -> None:
    """Each has the schedules in another order, and ticks all at once."""
    reads = [await put(stage, f"s{number:02}") for number in range(30)]
    batches = [[move_of(read, [job_of(stage, read)]) for read in reads] for _ in schedulers]
    for number, batch in enumerate(batches):
        random.Random(number).shuffle(batch)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(
            *(one.tick(batch, TICKET) for one, batch in zip(schedulers, batches, strict=True))
        )
    assert sum(answer.applied for batch in answers for answer in batch) == 30
    jobs = await stage.all_jobs()
    assert sorted(job.schedule or "" for job in jobs) == [read.name for read in reads]
    records = [await stage.store.ticks(read.name, None, 9) for read in reads]
    assert {one.job for (one,) in records} == {job.id for job in jobs}
    assert await stage.read_counts() == await stage.count_jobs()


async def test_a_schedule_replaced_while_it_ticks_is_one_or_the_other(
    stage: StoreStage, schedulers: list[PostgresStore]
) -> None:
    for number in range(20):
        read = await put(stage, f"s{number}")
        (ticked,), replaced = await asyncio.gather(
            schedulers[0].tick([move_of(read, [job_of(stage, read)])], TICKET),
            schedulers[1].put_schedule(read, read.version),
        )
        assert replaced is not None
        assert len(await stage.store.ticks(read.name, None, 9)) == ticked.applied
    assert await stage.read_counts() == await stage.count_jobs()


async def test_a_schedule_with_many_active_jobs_names_its_oldest(store: PostgresStore, stage: StoreStage) -> None:
    read = await put(stage)
    jobs = [job_of(stage, read, stage.clock.now() - SECOND * ago) for ago in range(ACTIVE_MAX + 5)]
    await store.tick([move_of(read, jobs, next_tick_at=read.next_tick_at)], TICKET)
    (due,) = await store.due_schedules(stage.clock.now() + SECOND, 9)
    assert due.active == tuple(job.id for job in jobs[:ACTIVE_MAX])


async def test_what_is_due_is_found_by_indexes_alone(stage: StoreStage) -> None:
    """However the statistics are: nothing is large here, so scans are made dear instead."""
    read = await put(stage, next_tick_at=stage.clock.now() + MINUTE)
    await stage.end_job(State.SUCCEEDED, schedule=read.name)
    scope = {"before": 1 << 50, "limit": 9, "active_limit": 9}
    assert scanned(load("due_schedules"), scope) <= {
        "ticking",
        "pending",
        "completing",
        "active_of",
        "completed_of",
        "schedules_pkey",
    }
    assert scanned(load("next_tick"), {}) == {"ticking"}


def scanned(text: bytes, scope: dict[str, Any]) -> set[str]:
    """The names of all indexes that the plan reads; of a table that it reads as a whole, the table's."""
    with psycopg.connect(database(18)) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        row = connection.execute(b"EXPLAIN (FORMAT JSON) " + text, scope).fetchone()
        whole: dict[str, str] = dict(connection.execute(WHOLE_INDEXES).fetchall())
    assert row is not None
    names = [node.get("Index Name", node["Relation Name"]) for node in nodes(row[0][0]["Plan"])]
    return {whole.get(name, name) for name in names}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
