"""A PostgreSQL shard that went back in time: no fence counts twice, whichever way the backup was put back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

import psycopg
import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.model.errors import Conflict, StoreUnavailable
from penstock.model.fences import epoch_of
from penstock.model.ids import JobId
from penstock.model.job import Claim, Lease, LogLine, Loss
from penstock.model.lifecycle import State
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.epoch import raise_epoch
from penstock.store.postgres.migrate import connect, migrate, migrations
from penstock.store.postgres.statements import in_transaction
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, TICKET, StoreStage
from servers import PgBouncer, Postgres
from tests.postgres import VERSIONS, server, started
from tests.servers_fixtures import real_servers

FENCES = "SELECT epoch FROM penstock.admission"
EVICT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'restored%' AND pid <> pg_backend_pid()"
)

numbers = count()


@pytest.fixture
def running() -> Postgres:
    return server(18)


def copy(place: Postgres, name: str) -> None:
    """A backup of a database, as a dump that was restored beside it would be."""
    place.run(EVICT)
    place.run(f'DROP DATABASE IF EXISTS "{name}-backup"')
    place.run(f'CREATE DATABASE "{name}-backup" TEMPLATE "{name}"')


def put_back(place: Postgres, name: str) -> None:
    """The backup instead of the database, while everything that used that runs on."""
    place.run(EVICT)
    place.run(f'ALTER DATABASE "{name}" RENAME TO "{name}-lost{next(numbers)}"')
    place.run(f'ALTER DATABASE "{name}-backup" RENAME TO "{name}"')


@pytest.fixture
async def name(running: Postgres) -> str:
    """An empty database."""
    name = f"restored{next(numbers)}"
    await asyncio.to_thread(running.database, name)
    return name


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    try:
        yield store
    finally:
        await store.close()


def stage_on(store: PostgresStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


async def claim_again(stage: StoreStage, lease: Lease) -> Claim:
    """After its worker was lost."""
    await stage.store.renew("w1", [lease], LEASE * 0)
    await stage.sweeps.reclaim(9)
    (claim,) = await stage.claim(lease.job, worker="w2")
    return claim


async def test_neither_a_lease_in_the_backup_nor_one_that_it_lacks_settles(running: Postgres, name: str) -> None:
    async with opened(running.url(name)) as store:
        stage = stage_on(store)
        old, done = await stage.run_job(), await stage.submit()
        copy(running, name)
        lost = await claim_again(stage, old)
        (late,) = await stage.claim(done.id)
        put_back(running, name)
        refused = [await stage.settle(Lease(one.job, one.fence)) for one in (old, lost, late)]
        assert [one.loss for one in refused] == [Loss.LOST] * 3
        await store.reclaim(9)
        again, first = await stage.claim(old.job, done.id)
        assert again.fence > lost.fence
        assert first.fence > late.fence
        assert (await stage.settle(Lease(again.job, again.fence))).loss is None
        assert (await stage.job(old.job)).fence == again.fence


async def renew(store: PostgresStore, lease: Lease) -> bool:
    (renewal,) = await store.renew("w1", [lease], LEASE)
    return renewal.loss is Loss.LOST


async def release(store: PostgresStore, lease: Lease) -> bool:
    (released,) = await store.release([lease])
    return released.loss is Loss.LOST


async def retry(store: PostgresStore, lease: Lease) -> bool:
    settled = await stage_on(store).settle(lease, State.SCHEDULED, retry_in=LEASE)
    return settled.loss is Loss.LOST


async def log(store: PostgresStore, lease: Lease) -> bool:
    return not await store.append_log(lease, [LogLine(SimulatedClock().now(), "stdout", "still here", 1)], 1000)


@pytest.mark.parametrize("move", [renew, release, retry, log], ids=lambda move: str(move.__name__))
async def test_nothing_is_written_under_a_lease_of_the_backup(
    running: Postgres, name: str, move: Callable[[PostgresStore, Lease], Awaitable[bool]]
) -> None:
    """As the first thing that is asked of the restored database."""
    async with opened(running.url(name)) as store:
        lease = await stage_on(store).run_job()
        copy(running, name)
        put_back(running, name)
        assert await move(store, lease)


async def test_a_process_that_starts_later_raises_the_epoch_before_it_asks_for_anything(
    running: Postgres, name: str
) -> None:
    async with opened(running.url(name)) as store:
        old = await stage_on(store).run_job()
    copy(running, name)
    put_back(running, name)
    async with opened(running.url(name)) as store:
        assert (await stage_on(store).job(old.job)).fence > old.fence


async def test_a_dump_that_was_restored_under_the_same_name_is_another_database(running: Postgres, name: str) -> None:
    with real_servers() as folder:
        folder.chmod(0o777)
        async with opened(running.url(name)) as store:
            stage = stage_on(store)
            old = await stage.run_job()
            running.dump(name, folder / "dump")
            lost = await claim_again(stage, old)
            running.load_dump(name, folder / "dump")
            assert (await stage.settle(Lease(lost.job, lost.fence))).loss is Loss.LOST
            await store.reclaim(9)
            (again,) = await stage.claim(old.job)
            assert again.fence > lost.fence


async def test_two_restores_of_one_backup_give_no_fence_twice(running: Postgres, name: str) -> None:
    """Both begin with the epoch of the backup."""
    async with opened(running.url(name)) as store:
        job = (await stage_on(store).submit()).id
    fences = []
    copy(running, name)
    for _ in range(2):
        running.run(f'CREATE DATABASE "{name}-again" TEMPLATE "{name}-backup"')
        put_back(running, name)
        async with opened(running.url(name)) as store:
            (claim,) = await stage_on(store).claim(job)
            fences.append(claim.fence)
        running.run(f'ALTER DATABASE "{name}-again" RENAME TO "{name}-backup"')
        await asyncio.to_thread(_next_second, running)
    assert len(set(fences)) == 2


def _next_second(place: Postgres) -> None:
    place.run("SELECT pg_sleep(1)")


async def test_of_many_that_notice_at_once_one_raises_the_epoch(running: Postgres, name: str) -> None:
    stores = [await PostgresStore.open(running.url(name)) for _ in range(6)]
    stages = [stage_on(store) for store in stores]
    jobs = [(await stages[0].submit()).id for _ in stores]
    copy(running, name)
    put_back(running, name)
    claims = await asyncio.gather(*(stage.claim(job) for stage, job in zip(stages, jobs, strict=True)))
    await asyncio.gather(*(store.close() for store in stores))
    (epoch,) = {epoch_of(claim.fence) for (claim,) in claims}
    assert epoch == int(running.run(FENCES, name)) > 0


async def test_a_process_that_noticed_too_raises_nothing_after_another_has(running: Postgres, name: str) -> None:
    """It waited for the lock meanwhile."""
    async with opened(running.url(name)) as store:
        copy(running, name)
        put_back(running, name)
        lease = await stage_on(store).run_job()
        async with connect(running.url(name)) as connection:
            await in_transaction(connection, None, raise_epoch)
        assert (await stage_on(store).settle(lease)).loss is None


async def test_an_idle_process_notices_with_its_next_probe(running: Postgres, name: str) -> None:
    """So that what ran by the backup runs again soon, whether anything is asked for or not."""
    async with opened(running.url(name)) as store:
        await stage_on(store).run_job()
        copy(running, name)
        put_back(running, name)
        await store.probe()
        assert len(await store.reclaim(9)) == 1


@pytest.fixture
def own_server() -> Iterator[Callable[[int], Postgres]]:
    """A server of the test's own, to be stopped and put back."""
    taken: list[Postgres] = []

    def start(version: int) -> Postgres:
        taken.append(started(version))
        return taken[-1]

    yield start
    for one in taken:
        one.kill()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_base_backup_that_was_recovered_has_another_timeline(
    own_server: Callable[[int], Postgres], version: int
) -> None:
    place = own_server(version)
    async with opened(place.url()) as store:
        stage = stage_on(store)
        old = await stage.run_job()
        place.back_up(place.folder / "backup")
        lost = await claim_again(stage, old)
        place.kill()
        place.restore(place.folder / "backup")
        place.start()
        assert (await stage.settle(Lease(lost.job, lost.fence))).loss is Loss.LOST
        assert (await stage.settle(old)).loss is Loss.LOST
        await store.reclaim(9)
        (again,) = await stage.claim(old.job)
        assert again.fence > lost.fence


@pytest.mark.slow
async def test_a_process_that_ran_on_notices_a_snapshot_that_was_put_back(
    own_server: Callable[[int], Postgres],
) -> None:
    """The server starts as after a crash, on the same timeline. Of two that saw it further on, one raises the epoch."""
    place = own_server(18)
    async with opened(place.url()) as store, opened(place.url()) as other:
        stage = stage_on(store)
        old = await stage.run_job()
        place.back_up(place.folder / "backup")
        lost = await claim_again(stage, old)
        await store.submit([stage.new() for _ in range(200)], TICKET)
        for one in (store, other):
            await one.probe()
        place.kill()
        place.restore(place.folder / "backup", recover=False)
        place.start()
        assert (await stage.settle(Lease(lost.job, lost.fence))).loss is Loss.LOST
        assert (await stage.settle(old)).loss is Loss.LOST
        await store.reclaim(9)
        (again,) = await stage.claim(old.job)
        await other.probe()
        assert (await stage.settle(Lease(again.job, again.fence))).loss is None


@pytest.mark.slow
async def test_a_server_that_was_killed_and_starts_again_keeps_its_leases(
    own_server: Callable[[int], Postgres],
) -> None:
    place = own_server(18)
    async with opened(place.url()) as store:
        stage = stage_on(store)
        lease = await stage.run_job()
        place.kill()
        place.start()
        await store.probe()
        assert (await stage.settle(lease)).loss is None


@pytest.fixture
def bouncer(running: Postgres) -> Iterator[PgBouncer]:
    """Run as root it takes another account, which has to get at its folder."""
    with real_servers() as folder:
        folder.chmod(0o755)
        with PgBouncer(folder, running) as started:
            yield started


async def test_behind_a_pooler_connections_outlive_the_database_and_fences_do_not(
    running: Postgres, name: str, bouncer: PgBouncer
) -> None:
    async with opened(f"{bouncer.url(name)}?pgbouncer=true") as store:
        stage = stage_on(store)
        lease = await stage.run_job()
        copy(running, name)
        lost = await claim_again(stage, lease)
        put_back(running, name)
        assert (await stage.settle(Lease(lost.job, lost.fence))).loss is Loss.LOST
        assert (await stage.settle(lease)).loss is Loss.LOST


async def test_while_a_transaction_keeps_the_epoch_from_being_raised_nothing_settles(
    running: Postgres, name: str
) -> None:
    async with opened(running.url(name)) as store:
        stage = stage_on(store)
        lease = await stage.run_job()
        copy(running, name)
        put_back(running, name)
        with psycopg.connect(running.url(name)) as connection:
            connection.execute("SELECT penstock.submit('mail', allow_unknown => true)")
            with pytest.raises(StoreUnavailable, match="still open; end it"):
                await stage.settle(lease)
            with pytest.raises(Conflict, match="still open; end it"):
                await store.raise_epoch()
        assert (await stage.settle(lease)).loss is Loss.LOST


async def test_a_role_without_privileges_can_tell(running: Postgres, name: str) -> None:
    async with opened(running.url(name)):
        pass
    with psycopg.connect(running.url(name), autocommit=True) as connection:
        connection.execute("DO $$ BEGIN CREATE ROLE plain; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        connection.execute("GRANT USAGE ON SCHEMA penstock TO plain")
        connection.execute("SET ROLE plain")
        found = connection.execute("SELECT penstock.lineage()").fetchone()
    assert found is not None
    assert found[0] is not None


async def test_the_operator_says_so_where_the_database_cannot_tell(running: Postgres, name: str) -> None:
    """As of a disk that was put back to a snapshot: all is as it was then."""
    async with opened(running.url(name)) as store:
        stage = stage_on(store)
        lease = await stage.run_job()
        said = await asyncio.to_thread(CliRunner().invoke, ROOT, ["db", "restored", "--url", running.url(name)])
        assert said.exit_code == 0, said.output
        assert "no lease from before counts any more" in said.output
        assert (await stage.settle(lease)).loss is Loss.LOST
        await store.reclaim(9)
        (claim,) = await stage.claim(lease.job)
        assert claim.fence > lease.fence + 1


async def test_settles_under_way_while_the_epoch_is_raised_count_or_are_lost(running: Postgres, name: str) -> None:
    """Neither waits for the other's rows: none of them fails."""
    async with opened(running.url(name)) as store, opened(running.url(name)) as other:
        stage, beside = stage_on(store), stage_on(other)
        leases = [await stage.run_job() for _ in range(60)]
        moves = [(stage, beside)[number % 2].settle(lease) for number, lease in enumerate(leases)]
        halves = asyncio.gather(*moves[:30]), asyncio.gather(*moves[30:])
        await other.raise_epoch()
        settled = [answer for half in halves for answer in await half]
        for lease, answer in zip(leases, settled, strict=True):
            job = await stage.job(lease.job)
            assert (answer.loss, job.ended) in {(None, True), (Loss.LOST, False)}
            assert (job.fence == lease.fence) is job.ended


async def test_jobs_that_run_during_an_upgrade_settle_afterwards(running: Postgres, name: str) -> None:
    """From the tables before there were epochs, with a job in each state."""
    known = [one for one in migrations() if one.number < 14]
    async with connect(running.url(name)) as connection:
        await migrate(connection, known)
        await connection.execute("INSERT INTO penstock.shard (number, probed_at) VALUES (0, 0)")
        await connection.execute(BEFORE_EPOCHS, prepare=False)
    async with opened(running.url(name)) as store:
        stage = stage_on(store)
        job, ended = (JobId(f"0190a6e2-0000-7000-8000-00000000000{number}") for number in (1, 2))
        assert (await stage.job(ended)).fence == 5
        assert (await stage.settle(Lease(job, 3))).loss is None
        found = await stage.job(job)
        assert (found.state, found.fence, found.attempt) == (State.SUCCEEDED, 3, 2)


BEFORE_EPOCHS = """
INSERT INTO penstock.jobs (
    id, type, queue, state, priority, due_at, created_at, started_at, lease_until, worker, attempt, fence
)
VALUES ('0190a6e2-0000-7000-8000-000000000001', 'mail', 'mail', 'running', 5, 0, 0, 0, 32503679999999, 'w1', 2, 3);
INSERT INTO penstock.ended (
    id, seq, due_at, created_at, completed_at, attempt, fence, losses, priority, owns_objects, state, type, queue
)
VALUES ('0190a6e2-0000-7000-8000-000000000002', 9, 0, 0, 0, 2, 5, 0, 5, false, 'succeeded', 'mail', 'mail');
INSERT INTO penstock.count_changes (jobs, queue, type, after)
VALUES (1, 'mail', 'mail', 'running'), (1, 'mail', 'mail', 'succeeded');
"""
