"""Two processes over one table: what one has written is never overwritten by what the other still believes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from penstock.model.errors import BrokerUnavailable, StoreUnavailable
from penstock.model.job import Lease, Loss, Progress
from penstock.model.lifecycle import State
from penstock.store.dynamodb import schema
from penstock.store.dynamodb.server_clock import GivenClock
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, SECOND, TICKET, StoreStage
from tests.dynamodb import new_store, new_table, open_store

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def stages(clock: SimulatedClock) -> AsyncIterator[tuple[StoreStage, StoreStage]]:
    async with AsyncExitStack() as undo:
        table = new_table()
        one, other = [await undo.enter_async_context(new_store(clock, table=table)) for _ in range(2)]
        yield StoreStage(one, clock), StoreStage(other, clock)


Stages = tuple[StoreStage, StoreStage]


def before_transactions(store: Any, act: Callable[[], Awaitable[object]]) -> None:
    """Let something happen right before the next transaction of a store reaches the table."""
    table = store.table
    transact = table.transact

    async def late(*args: Any) -> None:
        table.transact = transact
        await act()
        await transact(*args)

    table.transact = late


async def test_a_claim_by_a_head_that_is_out_of_date_takes_nothing(stages: Stages) -> None:
    one, other = stages
    job = (await one.submit(ticketed=True)).id
    (claim,) = await other.claim(job, worker="w2")
    assert await one.claim(job) == []
    await other.settle(Lease(claim.job, claim.fence))
    assert await one.claim(job) == []
    assert (await one.job(job)).state is State.SUCCEEDED


async def test_of_claims_at_the_same_time_one_wins(stages: Stages) -> None:
    one, other = stages
    jobs = [(await one.submit(ticketed=True)).id for _ in range(10)]
    claims = await asyncio.gather(
        *(stage.claim(job, worker=f"w{number}") for job in jobs for number, stage in enumerate(stages))
    )
    assert sorted(claim.job for found in claims for claim in found) == sorted(jobs)
    assert {(await other.job(job)).fence for job in jobs} == {1}


async def test_a_lease_that_is_renewed_at_the_last_moment_is_not_reclaimed(
    stages: Stages, clock: SimulatedClock
) -> None:
    one, other = stages
    lease = await one.run_job()
    clock.advance(LEASE)
    before_transactions(other.store, lambda: one.store.renew("w1", [lease], LEASE))
    assert await other.store.reclaim(9) == []
    assert (await one.settle(lease)).event is not None


async def test_a_job_that_is_settled_at_the_last_moment_is_not_reclaimed(stages: Stages, clock: SimulatedClock) -> None:
    one, other = stages
    lease = await one.run_job()
    clock.advance(LEASE)
    before_transactions(other.store, lambda: one.settle(lease))
    assert await other.store.reclaim(9) == []
    assert (await other.job(lease.job)).state is State.SUCCEEDED


async def test_a_worker_learns_from_its_sheet_what_another_process_did(stages: Stages, clock: SimulatedClock) -> None:
    one, other = stages
    lost, marked, ended = [await one.run_job() for _ in range(3)]
    leases = [lost, marked, ended]
    assert {renewal.loss for renewal in await one.store.renew("w1", leases, LEASE)} == {None}
    await other.store.cancel([marked.job])
    await other.store.cancel([ended.job], force=True)
    clock.advance(LEASE)
    await one.store.renew("w1", [marked], LEASE)
    await other.store.reclaim(9)
    reads = one.store.table.bill = {}  # type: ignore[attr-defined]
    answers = await one.store.renew("w1", leases, LEASE)
    assert [(answer.loss, answer.cancel) for answer in answers] == [
        (Loss.LOST, False),
        (None, True),
        (Loss.LOST, False),
    ]
    assert set(reads) == {"UpdateItem"}


async def test_a_process_that_starts_anew_checks_leases_before_it_renews_them(
    stages: Stages, clock: SimulatedClock
) -> None:
    one, other = stages
    kept, taken = await one.run_job(), await one.run_job()
    told = Lease(kept.job, kept.fence, Progress(0.5, "half"))
    await one.store.renew("w1", [told, taken], LEASE)
    await one.store.cancel([taken.job], force=True)
    answers = await other.store.renew("w1", [kept, taken], LEASE)
    assert [answer.loss for answer in answers] == [None, Loss.LOST]
    assert (await other.job(kept.job)).progress == Progress(0.5, "half")


async def test_a_refused_outcome_replaces_no_large_one_that_was_accepted(stages: Stages) -> None:
    one, other = stages
    lease = await one.run_job()
    await one.settle(lease, result=b"1" * 1000)
    assert (await other.settle(lease, result=b"2" * 1000)).loss is Loss.MINE_ALREADY
    assert (await other.job(lease.job)).result == b"1" * 1000


async def test_a_key_is_taken_once_by_processes_that_submit_at_the_same_time(stages: Stages) -> None:
    one, _ = stages
    for number in range(5):
        news = [one.new(key=f"k{number}") for _ in range(6)]
        answers = await asyncio.gather(
            *(stages[index % 2].store.submit([new], TICKET) for index, new in enumerate(news))
        )
        assert len({answer.id for (answer,) in answers}) == 1
        assert sum(answer.created for (answer,) in answers) == 1


class UnsureClock(GivenClock):
    """The clock of a process that knows the server's time to a second only."""

    def latest(self) -> int:
        return self.now() + 1000


async def test_a_lease_counts_from_the_latest_that_it_may_be(clock: SimulatedClock) -> None:
    """A process that is not sure of the time grants more, and never takes a lease early from one that is sure."""
    table = new_table()
    async with new_store(clock, table=table) as sure, new_store(clock, table=table) as unsure:
        unsure.table.clock = UnsureClock(clock)
        stage = StoreStage(unsure, clock)
        lease = await stage.run_job()
        clock.advance(LEASE + SECOND - MILLISECOND)
        assert await sure.reclaim(9) == []
        clock.advance(MILLISECOND)
        (event,) = await sure.reclaim(9)
        assert event.job == lease.job


async def test_a_table_of_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch, clock: SimulatedClock) -> None:
    table = new_table()
    with monkeypatch.context() as patch:
        patch.setitem(schema.PROJECTIONS, "place", {"ProjectionType": "KEYS_ONLY"})
        async with new_store(clock, table=table):
            pass
    with pytest.raises(StoreUnavailable, match="index 'place' lacks attributes"):
        await open_store(clock, table=table)


async def test_what_is_not_posted_is_not_marked(stages: Stages) -> None:
    one, other = stages
    job = (await one.submit()).id

    async def post(_tickets: object) -> None:
        raise BrokerUnavailable("the broker is down")

    with pytest.raises(BrokerUnavailable):
        await one.dispatch({"mail": 1}, post)
    assert [ticket.job for ticket in await other.dispatch({"mail": 1})] == [job]
