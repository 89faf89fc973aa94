"""What has ended lies in partitions by day: made ahead, dropped whole when all of it is past, and never needed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.model.clock import to_millis
from penstock.model.ids import JobId
from penstock.model.job import Job, JobFilter, LogLine, ObjectLink, Retention, Settlement
from penstock.model.lifecycle import State
from penstock.store.postgres import PostgresStore, partitions
from penstock.testing.clock import START, SimulatedClock
from penstock.testing.store_contract.stage import MINUTE, TICKET, StoreStage
from tests.postgres import VERSIONS, LockWaits, server

DAY = timedelta(days=1)
KEEP = Retention(succeeded=7 * DAY, failed=30 * DAY)
LINK = ObjectLink("jobs/a/b", 3, "sha256:00")
PARTITIONS = (
    "SELECT relname::text FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'penstock.ended'::regclass"
)
WHERE = "SELECT id::text, relname::text FROM penstock.ended JOIN pg_class ON pg_class.oid = ended.tableoid"
# As a settle does.
ENDS = """
WITH gone AS (DELETE FROM penstock.jobs WHERE id = %(job)s RETURNING *)
INSERT INTO penstock.ended (
    id, seq, due_at, created_at, completed_at, attempt, fence, losses, priority, owns_objects, state, type, queue
)
SELECT id, seq, due_at, created_at, %(now)s, attempt, fence, losses, priority, owns_objects, 'succeeded', type, queue
FROM gone
"""
DAY_1 = "ended_20300101"
DEFAULT = "ended_default"


@pytest.fixture(params=VERSIONS)
def url(request: pytest.FixtureRequest) -> str:
    return server(request.param).database("partitioned")


@pytest.fixture
async def stage(url: str) -> AsyncIterator[StoreStage]:
    clock = SimulatedClock(START + timedelta(hours=12))
    store = await PostgresStore.open(url, clock=clock)
    yield StoreStage(store, clock)
    await store.close()


def told(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def there(url: str) -> set[str]:
    return {name for (name,) in told(url, PARTITIONS)}


def home(url: str, job: JobId) -> str:
    return next(str(table) for one, table in told(url, WHERE) if one == job)


async def end(stage: StoreStage, jobs: int, **fields: object) -> list[JobId]:
    answers = await stage.store.submit([stage.new(**fields) for _ in range(jobs)], TICKET)
    claims = await stage.claim(*(answer.job.id for answer in answers))
    await stage.store.settle([Settlement(job=one.job, fence=one.fence, state=State.SUCCEEDED) for one in claims])
    return [claim.job for claim in claims]


async def remaining(stage: StoreStage) -> set[JobId]:
    """All jobs that are still there; and the counts say the same."""
    assert await stage.read_counts() == await stage.count_jobs()
    return {job.id for job in await stage.all_jobs()}


async def test_partitions_are_made_ahead_by_who_opens_and_by_who_prunes(url: str, stage: StoreStage) -> None:
    assert there(url) == {DEFAULT, *(f"ended_2030010{day}" for day in (1, 2, 3, 4))}
    stage.clock.advance(2 * DAY)
    await stage.sweeps.prune(KEEP, 9)
    assert {"ended_20300105", "ended_20300106"} <= there(url)
    assert home(url, await stage.end_job()) == "ended_20300103"


async def test_many_who_open_at_once_make_each_once(url: str) -> None:
    async with asyncio.timeout(60):
        stores = await asyncio.gather(*(PostgresStore.open(url, clock=SimulatedClock()) for _ in range(6)))
    for store in stores:
        await store.close()
    assert len(there(url)) == 5


async def test_a_job_goes_by_its_id_to_the_day_or_else_to_the_default(url: str, stage: StoreStage) -> None:
    late = await stage.run_job()
    stage.clock.advance(DAY)
    await stage.settle(late)
    assert home(url, late.job) == DAY_1
    stage.clock.advance(20 * DAY)
    assert home(url, await stage.end_job()) == DEFAULT


async def test_a_day_that_is_in_the_default_already_stays_there(url: str, stage: StoreStage) -> None:
    stage.clock.advance(20 * DAY)
    job = await stage.end_job()
    assert (await stage.sweeps.prune(KEEP, 9)).jobs == 0
    assert {"ended_20300122", "ended_20300124"} <= there(url)
    assert "ended_20300121" not in there(url)
    assert home(url, await stage.end_job()) == DEFAULT
    stage.clock.advance(30 * DAY)
    assert (await stage.sweeps.prune(KEEP, 9)).jobs == 2
    assert await stage.store.get([job]) == [None]


async def test_a_day_that_is_past_goes_whole_with_all_that_its_jobs_had(url: str, stage: StoreStage) -> None:
    lease = await stage.run_job(key="k", tags=("red",))
    await stage.store.append_log(lease, [LogLine(stage.clock.now(), "stdout", "hello")], 99)
    await stage.settle(lease)
    owner = await stage.end_job(params=None, params_object=LINK, queue="other")
    await stage.end_job(State.FAILED)
    await end(stage, 20)
    stage.clock.advance(31 * DAY)
    kept, waiting = await stage.end_job(key="kept", tags=("red",)), await stage.submit()
    pruned = await stage.sweeps.prune(KEEP, 3)
    assert (pruned.jobs, pruned.owners) == (23, (owner,))
    assert DAY_1 not in there(url)
    assert await remaining(stage) == {kept, waiting.id}
    assert await stage.store.read_log(lease.job, 0, 9) == ([], 0)
    assert [job.id for job in await stage.all_jobs(JobFilter(tag="red"))] == [kept]
    assert (await stage.submit(key="k")).id != lease.job
    assert (await stage.submit(key="kept")).id == kept
    left = "SELECT (SELECT count(*) FROM penstock.job_logs), (SELECT count(*) FROM penstock.job_tags)"
    assert told(url, left) == [(0, 1)]


async def test_a_day_with_the_anchor_of_a_batch_is_kept_for_the_longest_retention(url: str, stage: StoreStage) -> None:
    (anchor,) = await end(stage, 1, key="batch", anchor=True)
    await end(stage, 20)
    stage.clock.advance(8 * DAY)
    assert (await stage.sweeps.prune(KEEP, 99)).jobs == 20
    assert await remaining(stage) == {anchor}
    stage.clock.advance(23 * DAY)
    assert (await stage.sweeps.prune(KEEP, 99)).jobs == 1
    assert DAY_1 not in there(url)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
async def test_a_day_with_one_young_job_is_not_dropped(url: str, stage: StoreStage, state: State) -> None:
    """It ended long after the others; or it failed, which is kept for longer."""
    old, late = await end(stage, 4), await stage.run_job()
    stage.clock.advance(2 * DAY if state is State.FAILED else 4 * DAY)
    await stage.settle(late, state)
    stage.clock.advance(8 * DAY if state is State.FAILED else 5 * DAY)
    assert [(await stage.sweeps.prune(KEEP, 3)).jobs for _ in range(3)] == [3, 1, 0]
    assert DAY_1 in there(url)
    assert await remaining(stage) == {late.job}
    assert await stage.store.get(old) == [None] * 4


async def test_a_day_with_more_than_can_be_dropped_goes_in_batches_first(
    url: str, stage: StoreStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "WHOLE_JOBS", 10)
    await end(stage, 25)
    stage.clock.advance(9 * DAY)
    assert [(await stage.sweeps.prune(KEEP, 8)).jobs for _ in range(4)] == [8, 8, 9, 0]
    assert DAY_1 not in there(url)
    assert await remaining(stage) == set()


async def test_today_is_not_dropped_however_short_the_retention(url: str, stage: StoreStage) -> None:
    await end(stage, 5)
    stage.clock.advance(MINUTE)
    assert [(await stage.sweeps.prune(Retention(MINUTE, MINUTE), 3)).jobs for _ in range(3)] == [3, 2, 0]
    assert DAY_1 in there(url)


async def test_a_day_without_jobs_goes_too(url: str, stage: StoreStage) -> None:
    stage.clock.advance(8 * DAY)
    assert (await stage.sweeps.prune(KEEP, 9)).jobs == 0
    assert DAY_1 not in there(url)


async def test_a_job_whose_day_is_gone_ends_in_the_default(url: str, stage: StoreStage) -> None:
    waits = await stage.submit(delay=60 * DAY)
    stage.clock.advance(61 * DAY)
    await stage.sweeps.prune(KEEP, 9)
    await stage.sweeps.promote(9)
    await stage.dispatch({"mail": 9})
    await stage.settle(await stage.claim_again(waits.id))
    assert home(url, waits.id) == DEFAULT
    (again,) = await stage.store.submit([stage.new(id=waits.id)], TICKET)
    assert (again.event, again.job.state) == (None, State.SUCCEEDED)
    assert await remaining(stage) == {waits.id}


async def test_two_who_prune_at_once_count_each_job_once(url: str, stage: StoreStage) -> None:
    jobs = await end(stage, 300, params=None, params_object=LINK)
    stage.clock.advance(9 * DAY)
    other = await PostgresStore.open(url, clock=stage.clock)
    async with asyncio.timeout(60):
        pruned = await asyncio.gather(*(one.prune(KEEP, 40) for one in (stage.sweeps, other) * 3))
        while (more := await stage.sweeps.prune(KEEP, 40)).jobs:
            pruned.append(more)
    await other.close()
    assert sum(one.jobs for one in pruned) == 300
    assert sorted(owner for one in pruned for owner in one.owners) == sorted(jobs)
    assert await remaining(stage) == set()
    stage.clock.advance(partitions.RETRY_PAUSE)
    await stage.sweeps.prune(KEEP, 40)
    assert DAY_1 not in there(url)


@pytest.mark.parametrize("table", [DAY_1, "ended"])
async def test_a_day_in_use_goes_in_batches_meanwhile(url: str, stage: StoreStage, table: str) -> None:
    """By who reads it, or all days, in a long transaction: nobody else is kept waiting for it."""
    await end(stage, 5)
    stage.clock.advance(9 * DAY)
    with psycopg.connect(url) as reader:
        reader.execute(b"LOCK TABLE ONLY penstock." + table.encode() + b" IN ACCESS SHARE MODE")
        assert [(await stage.sweeps.prune(KEEP, 3)).jobs for _ in range(3)] == [3, 2, 0]
        assert DAY_1 in there(url)
        young = await stage.end_job()
        assert await remaining(stage) == {young}
    stage.clock.advance(partitions.RETRY_PAUSE)
    await stage.sweeps.prune(KEEP, 3)
    assert DAY_1 not in there(url)


async def test_a_job_that_comes_to_a_day_about_to_be_dropped_is_kept(
    url: str, stage: StoreStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits while the pruner waits for the table."""
    monkeypatch.setattr(partitions, "_IMPATIENT", b"SET LOCAL lock_timeout = '60s'")
    await end(stage, 5)
    late = await stage.run_job()
    stage.clock.advance(9 * DAY)
    now = to_millis(stage.clock.now())
    # So that the pruner has none to make, which would wait for the table too.
    await (await PostgresStore.open(url, clock=stage.clock)).close()
    async with await psycopg.AsyncConnection.connect(url) as other, asyncio.timeout(60):
        await other.execute(ENDS, {"job": late.job, "now": now})
        waits = LockWaits(url)
        pruning = asyncio.create_task(stage.sweeps.prune(KEEP, 9))
        await waits.next()
        await other.commit()
        await pruning
    assert home(url, late.job) == DAY_1


async def test_without_the_right_to_make_partitions_everything_still_works(url: str, stage: StoreStage) -> None:
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS guest")
        owner.execute("CREATE ROLE guest LOGIN")
        owner.execute("GRANT USAGE ON SCHEMA penstock TO guest")
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA penstock TO guest")
        owner.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA penstock TO guest")
    stage.clock.advance(20 * DAY)
    store = await PostgresStore.open(url.replace("penstock@", "guest@"), clock=stage.clock, migrate=False)
    guest = StoreStage(store, stage.clock)
    job = await guest.end_job()
    assert home(url, job) == DEFAULT
    stage.clock.advance(9 * DAY)
    assert (await guest.sweeps.prune(KEEP, 9)).jobs == 1
    assert await remaining(guest) == set()
    await store.close()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP OWNED BY guest; DROP ROLE guest")


async def test_pages_go_on_over_days_newest_first(stage: StoreStage) -> None:
    jobs: list[Job | None] = []
    for _ in range(6):
        jobs += await stage.store.get(await end(stage, 3))
        stage.clock.advance(DAY)
    newest_first = [job.id for job in reversed(jobs) if job]
    assert [job.id for job in await stage.all_jobs(page=4)] == newest_first
    assert [job.id for job in await stage.all_jobs(JobFilter(state=State.SUCCEEDED), page=5)] == newest_first
