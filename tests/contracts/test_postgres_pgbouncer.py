"""The PostgreSQL store keeps the contract behind PgBouncer, which gives every transaction another session."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from penstock.model.job import BacklogKey
from penstock.model.submission import Held, Inserted
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.migrate import connect, migrate, migrations
from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract import StoreContract
from penstock.testing.store_contract.stage import TICKET, StoreStage
from servers import Missing, PgBouncer
from tests.postgres import database, new_store, server


@pytest.fixture(scope="module")
def bouncer() -> Iterator[PgBouncer]:
    """Run as root it takes another account, which has to get at its folder."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        folder.chmod(0o755)
        try:
            started = PgBouncer(folder, server(18)).start()
        except Missing as missing:
            if "CI" in os.environ:
                raise
            pytest.skip(str(missing))
        with started:
            yield started


class TestBehindPgBouncer(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock, bouncer: PgBouncer) -> AsyncIterator[Shard]:
        async with new_store(18, clock):
            store = await PostgresStore.open(f"{bouncer.url('jobs')}?pgbouncer=true", clock=clock)
            yield store
            await store.close()


async def test_a_key_in_an_open_transaction_puts_off_only_the_jobs_under_it(bouncer: PgBouncer) -> None:
    """Without anything that is kept in a session."""
    async with new_store(18, None), asyncio.timeout(60):
        store = await PostgresStore.open(f"{bouncer.url('jobs')}?pgbouncer=true")
        stage = StoreStage(store, SimulatedClock())
        with psycopg.connect(database(18)) as connection:
            connection.execute("SELECT penstock.submit('mail', idempotency_key => 'held', allow_unknown => true)")
            answers = await store.submit([stage.new(key=key) for key in ("free", "held", None)], TICKET)
        await store.close()
    assert [type(answer) for answer in answers] == [Inserted, Held, Inserted]


async def test_many_stores_share_fewer_sessions_than_they_have_connections(bouncer: PgBouncer) -> None:
    async with new_store(18, None) as direct, asyncio.timeout(60):
        url = f"{bouncer.url('jobs')}?pgbouncer=true"
        stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(8)))
        stages = [StoreStage(store, SimulatedClock()) for store in stores]
        for number, stage in enumerate(stages):
            stage.rng.seed(number)
        jobs = await asyncio.gather(*(stage.submit() for stage in stages for _ in range(30)))
        assert len(await direct.get([job.id for job in jobs])) == 240
        tickets = [
            ticket for store in stores for ticket in await store.dispatch({BacklogKey("mail", "mail"): 30}, TICKET)
        ]
        assert {ticket.job for ticket in tickets} == {job.id for job in jobs}
        for store in stores:
            await store.close()


async def test_the_tables_are_made_once_also_through_pgbouncer(bouncer: PgBouncer) -> None:
    server(18).database("bounced")

    async def migrated() -> list[str]:
        async with connect(f"{bouncer.url('bounced')}?pgbouncer=true") as connection:
            return [one.name for one in await migrate(connection)]

    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(migrated() for _ in range(6)))
    assert sorted(name for names in answers for name in names) == [one.name for one in migrations()]
