"""The doctor on real backends: what it finds there, and that everything is as it was afterwards."""

import asyncio
from pathlib import Path

import pytest

from penstock.cli.doctor.backends import examine_backends
from penstock.cli.doctor.findings import Finding, FindingStatus
from penstock.config import BrokerSettings, Settings, StoreSettings
from penstock.model.ids import ShardId
from penstock.store.postgres import PostgresStore
from tests.emulators import ministack, use_emulator
from tests.postgres import database, server

TABLES = "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text = 'penstock'"
WRITES = "SELECT xmin, ctid, probed_at FROM penstock.shard"


@pytest.fixture
def empty() -> str:
    return server(18).database("examined")


@pytest.fixture
def jobs() -> str:
    return database(18)


async def examined(url: str, **store: object) -> Finding:
    (finding,) = await examine_backends(Settings(store=StoreSettings(url=url, **store)))  # type: ignore[arg-type]
    return finding


async def test_an_empty_database_stays_empty_and_is_said_to_lack_its_tables(empty: str) -> None:
    finding = await examined(empty)
    assert (finding.status, "lacks migrations 0001_jobs" in finding.found) == (FindingStatus.WARN, True)
    assert server(18).run(TABLES, "examined") == "0"


async def test_what_no_process_will_apply_by_itself_is_a_failure(empty: str) -> None:
    finding = await examined(empty, migrate=False)
    assert (finding.status, finding.remedy) == (FindingStatus.FAIL, "run: penstock db migrate")


async def test_a_database_in_use_is_not_written(jobs: str) -> None:
    before = server(18).run(WRITES, "jobs")
    finding = await examined(jobs)
    assert (finding.status, server(18).run(WRITES, "jobs")) == (FindingStatus.OK, before)


async def test_the_database_of_another_shard_is_a_failure(empty: str) -> None:
    await (await PostgresStore.open(empty, shard=ShardId(7))).close()
    finding = await examined(empty)
    assert (finding.status, "holds shard 7" in finding.found) == (FindingStatus.FAIL, True)


async def test_a_database_that_cannot_be_written_is_a_failure(jobs: str) -> None:
    finding = await examined(f"{jobs}?options=-c%20default_transaction_read_only%3Don")
    assert (finding.status, "takes no writes" in finding.found) == (FindingStatus.FAIL, True)


def test_the_file_of_a_sqlite_shard_is_not_made(tmp_path: Path) -> None:
    finding = asyncio.run(examined(f"sqlite://{tmp_path}/jobs.db"))
    assert finding.status is FindingStatus.OK
    assert list(tmp_path.iterdir()) == []


async def test_an_sqs_broker_answers_and_gets_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    use_emulator(monkeypatch, ministack())
    for _ in range(2):
        (finding,) = await examine_backends(Settings(broker=BrokerSettings(url="sqs://examined", deadline_seconds=10)))
        assert (finding.status, finding.found) == (FindingStatus.OK, "sqs://examined answers and holds 0 tickets")


async def test_a_prefix_that_sqs_cannot_use_is_a_failure() -> None:
    (finding,) = await examine_backends(Settings(broker=BrokerSettings(url="sqs://examined_here")))
    assert (finding.status, "sqs://PREFIX" in finding.found) == (FindingStatus.FAIL, True)
