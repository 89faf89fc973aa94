"""Workers that were lost: forgotten after a day, and until then no burden to those that work."""

import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.queues import LOST_LISTED
from penstock.model.job import Job
from penstock.model.workers import EVER, JobType, Seen, Worker, WorkerState
from penstock.objects.folder import FolderObjects
from penstock.scheduler.sweeper import BATCH_PAUSE, FORGOTTEN_AT_ONCE
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ADD, claim_one, pruner, submit, worker

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
DEAD = 300
TYPES = tuple(JobType(name=f"t{number}", queue="many") for number in range(40))


class CountingStore(SqliteStore):
    """Counts the rows of workers that were read."""

    rows = 0

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        found = await super().workers(seen, limit)
        self.rows += len(found)
        return found


@pytest.fixture
async def store(tmp_path: Path, clock: SimulatedClock) -> CountingStore:
    return await CountingStore.open(tmp_path / "penstock.db", clock=clock)


@pytest.fixture
async def engine(
    store: CountingStore, tmp_path: Path, clock: SimulatedClock, settings: Settings
) -> AsyncIterator[Engine]:
    engine = Engine(store, MemoryBroker(), FolderObjects(tmp_path, clock=clock), settings, clock, random.Random(7))
    yield engine
    await engine.close()


async def lose(engine: Engine, clock: SimulatedClock, count: int) -> datetime:
    """Workers that had many types and were never heard from again; when they were."""
    row = worker("dead", "add", *(one.name for one in TYPES))
    await engine.worker_api.join(row, [ADD, *TYPES])
    clock.advance(5 * MINUTE)
    for number in range(count):
        await engine.store.put_worker(replace(row, id=f"dead-{number:04}"))
    seen_at = clock.now()
    await engine.store.delete_worker("dead")
    return seen_at


async def reason(engine: Engine, job: Job) -> str | None:
    engine.catalog.forget()
    return (await engine.jobs.item(await engine.jobs.get(job.id))).reason


async def test_submit_claim_join_queues_and_metrics_read_no_worker_that_was_lost_long_ago(
    engine: Engine, store: CountingStore, clock: SimulatedClock
) -> None:
    await lose(engine, clock, DEAD)
    clock.advance(6 * MINUTE)
    store.rows = 0
    await engine.worker_api.join(worker("alive", "add"), [ADD])
    job = await submit(engine)
    assert (await claim_one(engine, "alive")).job == job.id
    await engine.worker_api.renew(worker("alive", "add"), [])
    await engine.queues.list()
    await engine.queues.workers()
    await engine.fleets.list()
    engine.catalog.forget()
    await submit(engine)
    # One that is alive, for each time that the registry is read.
    assert 1 <= store.rows <= 10


async def test_of_the_workers_that_were_lost_long_ago_the_last_ones_are_listed(
    engine: Engine, clock: SimulatedClock
) -> None:
    await lose(engine, clock, DEAD)
    clock.advance(MINUTE)
    await engine.store.put_worker(worker("later"))
    clock.advance(6 * MINUTE)
    await engine.store.put_worker(worker("alive"))
    listed = await engine.queues.list_workers()
    assert len(listed) == LOST_LISTED + 1
    states = {one.id: one.state for one in listed}
    assert (states["alive"], states["later"]) == (WorkerState.READY, WorkerState.LOST)


async def test_a_worker_that_was_lost_is_forgotten_after_a_day(engine: Engine, clock: SimulatedClock) -> None:
    await lose(engine, clock, 2)
    clock.advance(DAY)
    await engine.store.put_worker(worker("alive"))
    pruning = pruner(engine)
    await pruning.step()
    assert len(await engine.store.workers()) == 3
    clock.advance(timedelta(milliseconds=1))
    await pruning.step()
    assert [one.id for one in await engine.store.workers()] == ["alive"]


async def test_many_lost_workers_are_forgotten_a_few_at_a_time(engine: Engine, clock: SimulatedClock) -> None:
    await lose(engine, clock, FORGOTTEN_AT_ONCE + 1)
    clock.advance(DAY + MINUTE)
    pruning = pruner(engine)
    assert await pruning.step() == BATCH_PAUSE
    assert len(await engine.store.workers()) == 1
    assert await pruning.step() > BATCH_PAUSE
    assert await engine.store.workers() == []


async def test_a_job_says_since_when_no_worker_has_its_type_when_those_are_forgotten(
    engine: Engine, clock: SimulatedClock
) -> None:
    seen_at = await lose(engine, clock, 3)
    job = await submit(engine, "t7", {})
    since = f"no worker has run this type since {seen_at:%Y-%m-%dT%H:%M:%SZ}"
    pruning = pruner(engine)
    for span in (2 * MINUTE, 8 * MINUTE, 2 * DAY):
        clock.advance(span)
        await pruning.step()
        assert await reason(engine, job) == since
    assert await engine.store.workers() == []


@pytest.mark.parametrize("span", [8 * MINUTE, 2 * DAY])
async def test_a_job_says_so_too_when_its_last_worker_was_lost_while_no_scheduler_ran(
    engine: Engine, clock: SimulatedClock, span: timedelta
) -> None:
    seen_at = await lose(engine, clock, 3)
    job = await submit(engine, "t7", {})
    clock.advance(span)
    await pruner(engine).step()
    assert await reason(engine, job) == f"no worker has run this type since {seen_at:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_type_that_another_worker_has_is_not_said_to_be_without_one(
    engine: Engine, clock: SimulatedClock
) -> None:
    await lose(engine, clock, 3)
    clock.advance(2 * DAY)
    await engine.store.put_worker(worker("alive", "t7"))
    told = {one.about: one for one in await engine.store.notices()}
    await pruner(engine).step()
    changed = {one.name for one in await engine.store.notices() if told[one.about] != one}
    assert changed == {"add", *(one.name for one in TYPES)} - {"t7"}
