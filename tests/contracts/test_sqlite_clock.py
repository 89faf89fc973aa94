"""A step of the wall clock, in either direction: due times follow it, leases end as if it had not been."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.model.lifecycle import State
from penstock.model.workers import Worker
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, MINUTE, SECOND, TICKET, StoreStage

HOUR = timedelta(hours=1)
STEPS = pytest.mark.parametrize("step", [2 * HOUR, -HOUR], ids=["forward", "back"])


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[StoreStage]:
    clock = SimulatedClock()
    store = await SqliteStore.open(tmp_path / "jobs.db", clock=clock)
    yield StoreStage(store, clock)
    await store.close()


def step_wall_clock(stage: StoreStage, step: timedelta) -> None:
    stage.clock.set(stage.clock.now() + step)


@STEPS
async def test_a_running_job_stays_with_its_worker_until_its_lease_has_lasted(
    stage: StoreStage, step: timedelta
) -> None:
    lease = await stage.run_job()
    stage.clock.advance(LEASE - SECOND)
    step_wall_clock(stage, step)
    assert await stage.sweeps.reclaim(9) == []
    stage.clock.advance(SECOND)
    assert [event.job for event in await stage.sweeps.reclaim(9)] == [lease.job]


@STEPS
async def test_a_lease_renewed_after_a_step_lasts_as_long_as_any(stage: StoreStage, step: timedelta) -> None:
    lease = await stage.run_job()
    step_wall_clock(stage, step)
    await stage.store.renew("w1", [lease], LEASE)
    stage.clock.advance(LEASE - SECOND)
    assert await stage.sweeps.reclaim(9) == []
    stage.clock.advance(SECOND)
    assert [event.job for event in await stage.sweeps.reclaim(9)] == [lease.job]


@STEPS
async def test_a_ticket_a_retry_and_a_role_last_as_long_as_without_the_step(stage: StoreStage, step: timedelta) -> None:
    ticketed = await stage.submit(ticketed=True)
    waiting = await stage.run_job()
    await stage.settle(waiting, State.SCHEDULED, retry_in=TICKET)
    assert await stage.store.acquire_role("autoscaler", "one", TICKET) == 1
    stage.clock.advance(TICKET - SECOND)
    step_wall_clock(stage, step)
    assert await stage.expire_overdue_tickets() == 0
    assert await stage.sweeps.promote(9) == []
    assert await stage.store.acquire_role("autoscaler", "two", TICKET) is None
    stage.clock.advance(SECOND)
    assert await stage.expire_overdue_tickets() == 1
    assert [event.job for event in await stage.sweeps.promote(9)] == [waiting.job]
    assert await stage.store.acquire_role("autoscaler", "two", TICKET) == 2
    assert (await stage.job(ticketed.id)).state is State.QUEUED


@STEPS
async def test_a_worker_was_seen_as_long_ago_as_without_the_step(stage: StoreStage, step: timedelta) -> None:
    started_at = datetime(2026, 1, 1, tzinfo=UTC)
    await stage.store.put_worker(
        Worker(id="w1", host="here", pid=1, version="1", types=(), queues=None, capacity=1, started_at=started_at)
    )
    stage.clock.advance(MINUTE)
    step_wall_clock(stage, step)
    await stage.store.probe()
    (worker,) = await stage.store.workers()
    assert worker.seen_at is not None
    assert await stage.store.now() - worker.seen_at == MINUTE


async def test_due_times_follow_the_wall_clock(stage: StoreStage) -> None:
    job = await stage.submit(due_at=stage.clock.now() + HOUR)
    step_wall_clock(stage, HOUR)
    assert [event.job for event in await stage.sweeps.promote(9)] == [job.id]
    assert await stage.store.now() == stage.clock.now()


async def test_the_shards_time_steps_with_the_write_that_moves_what_is_counted_from_it(stage: StoreStage) -> None:
    before = await stage.store.now()
    step_wall_clock(stage, HOUR)
    assert await stage.store.now() == before
    await stage.store.probe()
    assert await stage.store.now() == before + HOUR


async def test_a_step_too_small_to_tell_from_the_time_between_two_readings_adds_up(stage: StoreStage) -> None:
    before = await stage.store.now()
    for _ in range(2):
        step_wall_clock(stage, timedelta(milliseconds=300))
        await stage.store.probe()
    assert await stage.store.now() == before + timedelta(milliseconds=600)
