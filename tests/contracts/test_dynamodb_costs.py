"""What the life of a job consumes, in the write units that AWS bills, as dynoxide counts them; without the journal."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from penstock.model.ids import JobId
from penstock.model.job import Lease
from penstock.store.dynamodb import DynamoStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, MINUTE, SECOND, TICKET, StoreStage
from tests.dynamodb import new_store

READS = {"GetItem", "BatchGetItem", "Query"}
JOBS = 10
"""Lives that are averaged: counters of ended jobs are written once for many."""


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def store(clock: SimulatedClock) -> AsyncIterator[DynamoStore]:
    async with new_store(clock, keep_events=False) as store:
        yield store


@pytest.fixture
def stage(store: DynamoStore, clock: SimulatedClock) -> StoreStage:
    return StoreStage(store, clock)


class Bill:
    """Write and read units of what was done meanwhile."""

    writes = 0.0
    reads = 0.0


@contextmanager
def billed(store: DynamoStore) -> Iterator[Bill]:
    bill = Bill()
    store.table.bill = {}
    yield bill
    bill.reads = sum(units for action, units in store.table.bill.items() if action in READS)
    bill.writes = sum(store.table.bill.values()) - bill.reads
    store.table.bill = None


async def _end_all(stage: StoreStage, jobs: list[JobId]) -> None:
    for claim in await stage.claim(*jobs):
        await stage.settle(Lease(claim.job, claim.fence))
    await stage.store.counts()


async def test_a_plain_job_costs_seven_units_and_a_half_at_most(store: DynamoStore, stage: StoreStage) -> None:
    with billed(store) as bill:
        jobs = [(await stage.submit(ticketed=True, params=b"x" * 250)).id for _ in range(JOBS)]
        await _end_all(stage, jobs)
    assert bill.writes / JOBS <= 7.5


async def test_a_key_costs_four_units_more(store: DynamoStore, stage: StoreStage) -> None:
    with billed(store) as bill:
        jobs = [(await stage.submit(ticketed=True, key=f"order-{number}")).id for number in range(JOBS)]
        await _end_all(stage, jobs)
    assert bill.writes / JOBS <= 11.5


async def test_a_delayed_job_costs_ten_units_and_a_half_at_most(store: DynamoStore, stage: StoreStage) -> None:
    """It falls due and gets its ticket in one write."""
    with billed(store) as bill:
        jobs = [(await stage.submit(delay=MINUTE)).id for _ in range(JOBS)]
        stage.clock.advance(MINUTE)
        summary = await store.due_summary()
        tickets = await store.dispatch(dict.fromkeys(summary.due, JOBS), TICKET, due=True)
        assert [ticket.job for ticket in tickets] == jobs
        await _end_all(stage, jobs)
    assert bill.writes / JOBS <= 10.5


async def test_a_beat_of_a_worker_with_sixteen_leases_costs_one_unit(store: DynamoStore, stage: StoreStage) -> None:
    leases = [await stage.run_job() for _ in range(16)]
    await store.renew("w1", leases, LEASE)
    with billed(store) as bill:
        stage.clock.advance(SECOND)
        assert all(one.loss is None for one in await store.renew("w1", leases, LEASE))
    assert (bill.writes, bill.reads) == (1.0, 0.0)
