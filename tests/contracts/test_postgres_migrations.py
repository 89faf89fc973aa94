"""Migrations of PostgreSQL: applied once by one of many, whole or not at all, and old code on newer tables."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

import psycopg
import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.model.clock import EARLIEST, LATEST
from penstock.model.errors import StoreUnavailable
from penstock.model.job import JobFilter
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.migrate import (
    Migration,
    MigrationStatus,
    connect,
    migrate,
    migrations,
    require,
    script,
    status,
)
from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.reads import ReadContract
from penstock.testing.store_contract.schedules import ScheduleContract
from penstock.testing.store_contract.settles import SettleContract
from penstock.testing.store_contract.submits import SubmitContract
from penstock.testing.store_contract.ticks import TickContract
from tests.postgres import VERSIONS, LockWaits, emptied, server

KNOWN = migrations()
NEXT = KNOWN[-1].number + 1
ADDITIVE = Migration(
    NEXT,
    f"{NEXT:04}_colours",
    "ALTER TABLE penstock.jobs ADD COLUMN colour text; ALTER TABLE penstock.ended ADD COLUMN colour text;"
    "ALTER TABLE penstock.schedules ADD COLUMN colour text DEFAULT 'red'; CREATE TABLE penstock.colours (name text);",
)
BREAKING = Migration(
    NEXT, f"{NEXT:04}_colours", f"-- min_version: {NEXT}\nALTER TABLE penstock.jobs ADD COLUMN colour text;"
)
BROKEN = Migration(NEXT, f"{NEXT:04}_broken", "CREATE TABLE penstock.half (n integer); SELECT 1 / 0;")
NAMES = [one.name for one in KNOWN]
OUT_OF_RANGE = """
INSERT INTO penstock.shard (number, probed_at) VALUES (0, 0);
INSERT INTO penstock.jobs (id, type, queue, state, priority, due_at, created_at, expires_at)
VALUES ('0190a6e2-0000-7000-8000-000000000000', 'mail', 'mail', 'scheduled', 5, -1, 0, 568971820800000);
INSERT INTO penstock.count_changes (jobs, queue, type, after) VALUES (1, 'mail', 'mail', 'scheduled');
INSERT INTO penstock.schedules (name, version, paused, after_completion, end_at, next_tick_at, intention)
VALUES ('nightly', 1, false, false, 568971820800000, -1, '{"name":"nightly","when":{"type":"interval","span":"PT60S"},
"type":"mail","params":"e30=","start_at":"9999-12-31T23:59:59-12:00","end_at":"9999-12-31T23:59:59-12:00",
"created_at":"2030-01-01T00:00:00Z","updated_at":"2030-01-01T00:00:00Z"}');
"""

numbers = count()


@pytest.fixture(params=VERSIONS)
def url(request: pytest.FixtureRequest) -> str:
    """An empty database."""
    return server(request.param).database(f"migrating{next(numbers)}")


async def standing(url: str) -> MigrationStatus:
    async with connect(url) as connection:
        return await status(connection)


async def migrated(url: str, known: Sequence[Migration] = KNOWN) -> list[str]:
    async with connect(url) as connection:
        return [one.name for one in await migrate(connection, known)]


def applied(stands: MigrationStatus) -> list[str]:
    return [one.name for one in stands.applied]


def test_numbers_have_no_gap_and_names_begin_with_them() -> None:
    assert [one.number for one in KNOWN] == list(range(1, len(KNOWN) + 1))
    assert all(one.name.startswith(f"{one.number:04}_") for one in KNOWN)


async def test_of_many_that_start_at_once_one_applies_each(url: str) -> None:
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(migrated(url) for _ in range(8)))
    assert sorted(name for names in answers for name in names) == NAMES
    assert applied(await standing(url)) == NAMES


async def test_who_comes_second_waits_however_long_it_takes(url: str) -> None:
    """Longer than any of its statements may take otherwise."""
    waits = LockWaits(url, timedelta(milliseconds=200))
    async with await psycopg.AsyncConnection.connect(url) as first, connect(url) as second:
        await first.execute("SELECT pg_advisory_xact_lock(7033520117203104)")
        await second.execute("SET statement_timeout = 50; SET lock_timeout = 50", prepare=False)
        waiting = asyncio.create_task(migrate(second))
        async with asyncio.timeout(60):
            await waits.next()
            await first.rollback()
            assert [one.name for one in await waiting] == NAMES


async def test_a_store_waits_for_who_migrates_longer_than_its_calls_may_take(url: str) -> None:
    waits = LockWaits(url, timedelta(seconds=1.5))
    async with await psycopg.AsyncConnection.connect(url) as first, asyncio.timeout(60):
        await first.execute("SELECT pg_advisory_xact_lock(7033520117203104)")
        opening = asyncio.create_task(PostgresStore.open(url, deadline=timedelta(seconds=1)))
        await waits.next()
        await first.rollback()
        store = await opening
        await store.probe()
        await store.close()


async def test_nothing_is_applied_twice(url: str) -> None:
    assert await migrated(url) == NAMES
    assert await migrated(url) == []


async def test_a_migration_that_fails_leaves_nothing_and_keeps_those_before_it(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="division by zero"):
        await migrated(url, [*KNOWN, BROKEN])
    assert applied(await standing(url)) == NAMES
    async with connect(url) as connection:
        rows = await (await connection.execute("SELECT to_regclass('penstock.half')")).fetchall()
    assert rows == [(None,)]


async def test_looking_changes_nothing(url: str) -> None:
    assert [one.name for one in (await standing(url)).pending] == NAMES
    async with connect(url) as connection:
        rows = await (await connection.execute("SELECT to_regnamespace('penstock')")).fetchall()
    assert rows == [(None,)]


async def test_the_sql_run_by_hand_is_the_same_migration(url: str) -> None:
    async with connect(url) as connection:
        await connection.execute(script((await status(connection)).pending).encode(), prepare=False)
    stands = await standing(url)
    assert (applied(stands), stands.pending) == (NAMES, ())
    assert await migrated(url) == []
    await (await PostgresStore.open(url)).close()


async def test_instants_that_were_kept_before_they_had_a_range_are_brought_into_it(url: str) -> None:
    await migrated(url, KNOWN[:4])
    with psycopg.connect(url) as connection:
        connection.execute(OUT_OF_RANGE)
    assert await migrated(url) == NAMES[4:]
    store = await PostgresStore.open(url)
    (job,) = (await store.page(JobFilter(), None, 9)).jobs
    (schedule,) = await store.schedules(None, 9)
    assert (job.due_at, job.expires_at, job.tick_at) == (EARLIEST, LATEST, None)
    assert (schedule.next_tick_at, schedule.end_at, schedule.start_at) == (EARLIEST, LATEST, LATEST)
    assert (await store.cancel([job.id]))[0].event is not None
    await store.close()


async def test_who_may_not_migrate_says_what_to_do(url: str) -> None:
    async with connect(url) as connection:
        with pytest.raises(StoreUnavailable, match="penstock db migrate"):
            await require(connection)
        await migrate(connection, KNOWN[:-1])
        with pytest.raises(StoreUnavailable, match=KNOWN[-1].name):
            await require(connection)
        with pytest.raises(StoreUnavailable, match="penstock db migrate"):
            await PostgresStore.open(url, migrate=False)
        await migrate(connection)
        await require(connection)
    await (await PostgresStore.open(url, migrate=False)).close()


async def test_a_newer_database_is_used_while_it_says_nothing_else(url: str) -> None:
    assert await migrated(url, [*KNOWN, ADDITIVE]) == [*NAMES, ADDITIVE.name]
    assert await migrated(url) == []
    async with connect(url) as connection:
        await require(connection)


async def test_a_newer_database_that_old_code_cannot_use_is_refused(url: str) -> None:
    await migrated(url, [*KNOWN, BREAKING])
    with pytest.raises(StoreUnavailable, match=f"{BREAKING.name}.*newer Penstock"):
        await migrated(url)
    with pytest.raises(StoreUnavailable, match="newer Penstock"):
        await PostgresStore.open(url)
    assert await migrated(url, [*KNOWN, BREAKING]) == []


async def test_a_migration_that_was_edited_after_it_was_applied_is_noticed(url: str) -> None:
    edited = Migration(KNOWN[0].number, KNOWN[0].name, KNOWN[0].text + "-- and more\n")
    await migrated(url, [edited, *KNOWN[1:]])
    with pytest.raises(StoreUnavailable, match=f"another build.*{edited.name}"):
        await migrated(url)


@asynccontextmanager
async def on_newer_tables(clock: SimulatedClock) -> AsyncIterator[Shard]:
    url = newer_database()
    async with connect(url) as connection:
        await migrate(connection, [*KNOWN, ADDITIVE])
        await connection.execute(await asyncio.to_thread(emptied, 18), prepare=False)
    store = await PostgresStore.open(url, clock=clock)
    yield store
    await store.close()


def newer_database() -> str:
    """The same one each time: making tables is slow."""
    there = server(18).run("SELECT count(*) FROM pg_database WHERE datname = 'newer'")
    return server(18).url("newer") if there == "1" else server(18).database("newer")


class TestOldCodeOnNewerTables(SubmitContract, SettleContract, ReadContract, ScheduleContract, TickContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with on_newer_tables(clock) as store:
            yield store


class TestCommands:
    @pytest.fixture
    def url(self) -> str:
        return server(18).database("commanded")

    def told(self, *words: str) -> str:
        shown = CliRunner().invoke(ROOT, ["db", *words], prog_name="penstock", catch_exceptions=False)
        assert shown.exit_code == 0
        return shown.output

    def test_a_database_is_looked_at_and_brought_up_to_date(self, url: str) -> None:
        assert json.loads(self.told("status", "--url", url, "--json")) == {"shard": 0, "applied": [], "pending": NAMES}
        assert "pending" in self.told("--url", url)
        assert json.loads(self.told("migrate", "--url", url, "--json")) == {"shard": 0, "applied": NAMES}
        assert "up to date" in self.told("migrate", "--url", url)
        assert json.loads(self.told("status", "--url", url, "--json")) == {"shard": 0, "applied": NAMES, "pending": []}

    def test_the_pending_sql_is_printed_and_can_be_run(self, url: str) -> None:
        server(18).run(self.told("sql", "--url", url), "commanded")
        assert "up to date" in self.told("sql", "--url", url)
        assert json.loads(self.told("sql", "--url", url, "--json"))["sql"] == ""

    def test_every_shard_of_the_settings_is_meant(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        other = server(18).database("commanded_too")
        monkeypatch.setenv("PENSTOCK_STORE_SHARDS", f"0={url},7={other}")
        answers = [json.loads(line) for line in self.told("migrate", "--json").splitlines()]
        assert [answer["shard"] for answer in answers] == [0, 7]
        assert all(answer["applied"] == NAMES for answer in answers)

    def test_an_embedded_store_needs_none_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PENSTOCK_STORE_URL", raising=False)
        assert "SQLite brings itself up to date" in self.told("migrate")

    def test_a_password_is_never_shown(self, url: str) -> None:
        with_password = url.replace("penstock@", "penstock:secret@")
        assert "secret" not in self.told("status", "--url", with_password) + self.told(
            "migrate", "--url", with_password
        )
