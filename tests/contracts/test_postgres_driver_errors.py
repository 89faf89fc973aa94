"""Whatever the PostgreSQL driver raises is an outage or the fault of the values, and never passes as it is."""

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import errors

from penstock.model.errors import StoreUnavailable
from penstock.store.postgres.connection import FAULTS, PostgresAddress
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.statements import Connection
from tests.postgres import database

POOL = "penstock.store.postgres.pool"


def kinds(root: type[psycopg.Error] = psycopg.Error) -> Iterator[type[psycopg.Error]]:
    """Every error that the driver names."""
    yield root
    for child in root.__subclasses__():
        yield from kinds(child)


@pytest.fixture(scope="module")
def url() -> str:
    return database(18)


@pytest.fixture
async def pool(url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(PostgresAddress.parse(url), timedelta(seconds=5), 2)
    yield pool
    await pool.close()


async def fail(pool: ConnectionPool, error: Exception) -> None:
    async def work(_: Connection) -> None:
        raise error

    await pool.run(work)


async def test_every_error_of_the_driver_is_an_outage_unless_the_values_are_at_fault(pool: ConnectionPool) -> None:
    for kind in kinds():
        with pytest.raises(kind if issubclass(kind, FAULTS) else StoreUnavailable):
            await fail(pool, kind("said by the server"))


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), OSError("no such device")])
async def test_an_error_of_the_network_is_an_outage(pool: ConnectionPool, error: OSError) -> None:
    with pytest.raises(StoreUnavailable):
        await fail(pool, error)


async def test_an_error_that_the_driver_raises_by_itself_is_logged_once_with_its_traceback(
    pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, POOL), pytest.raises(StoreUnavailable) as refusal:
        await fail(pool, psycopg.ProgrammingError("the last operation didn't produce records"))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is refusal.value.__cause__


@pytest.mark.parametrize("error", [psycopg.OperationalError("lost"), errors.AdminShutdown("the server stops")])
async def test_an_outage_is_not_logged_for_each_call(
    pool: ConnectionPool, caplog: pytest.LogCaptureFixture, error: psycopg.Error
) -> None:
    with caplog.at_level(logging.INFO, POOL), pytest.raises(StoreUnavailable):
        await fail(pool, error)
    assert not caplog.records
