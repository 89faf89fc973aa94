"""PostgreSQL servers for tests: one of each version for the run, and empty stores on them in a few milliseconds."""

import asyncio
import atexit
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest

from penstock.model.clock import Clock
from penstock.store.postgres import PostgresStore
from servers import Missing, Postgres
from tests.watch import FolderWatch

VERSIONS = (16, 18)
# Not the partitions, which come and go.
TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'penstock'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
WHOLE_INDEXES = """
SELECT part.relname::text, whole.relname::text FROM pg_inherits
JOIN pg_class AS part ON part.oid = inhrelid JOIN pg_class AS whole ON whole.oid = inhparent
WHERE part.relkind = 'i'
"""
"""Of each partition's indexes, whose parts they are."""

LOCK_WAIT_SECONDS = 60.0
MILLISECOND = timedelta(milliseconds=1)
KEPT = {"migrations", "shard"}
# These tests are about moves, not about the disk.
QUICK = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off", "autovacuum": "off"}
# A session that waits for a lock is told in the log, for `LockWaits`, once it has waited for so long.
NOISY = {"log_lock_waits": "on", "deadlock_timeout": "10ms"}


def started(version: int) -> Postgres:
    """A server of its own. Skipped where the wheel is missing, but not in CI.

    Not in pytest's folder: each run of pytest closes that to other accounts again, and the server has one of its own.
    """
    memory = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
    folder = Path(mkdtemp(prefix="penstock-postgres-", dir=memory))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return Postgres(folder, version=version, settings={**QUICK, **NOISY}).start()
    except Missing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))


@cache
def server(version: int) -> Postgres:
    """The one of this test process."""
    server = started(version)
    atexit.register(server.kill)
    return server


@cache
def database(version: int) -> str:
    """The URL of a database with all tables, for this process alone."""
    url = server(version).database("jobs")
    asyncio.run(_made(url))
    return url


@cache
def emptied(version: int) -> bytes:
    with psycopg.connect(database(version)) as connection:
        names = sorted({name for (name,) in connection.execute(TABLES)} - KEPT)
    return "; ".join(f"DELETE FROM penstock.{name}" for name in names).encode()  # noqa: S608 - names of tables


@asynccontextmanager
async def new_store(version: int, clock: Clock | None, **options: Any) -> AsyncIterator[PostgresStore]:
    """An empty store."""
    # A server dies with the thread that has started it, so that must not be one of the loop's.
    server(version)
    url = await asyncio.to_thread(database, version)
    statement = await asyncio.to_thread(emptied, version)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)
    store = await PostgresStore.open(url, clock=clock, **options)
    try:
        yield store
    finally:
        await store.close()


class LockWaits:
    """The sessions that wait for a lock from now on, as the log of a database's server tells them.

    `after`: told once they have waited for so long, for sessions of this database that begin later.
    """

    def __init__(self, url: str, after: timedelta | None = None) -> None:
        (there,) = [one for one in map(server, VERSIONS) if f":{one.port}/" in url]
        if after is not None:
            there.run(f"ALTER DATABASE {url.rpartition('/')[2]} SET deadlock_timeout = '{after / MILLISECOND:.0f}ms'")
        self._log = there.log
        self._told = self._count()

    async def next(self) -> None:
        """Return once one more of them waits."""
        self._told += 1
        async with asyncio.timeout(LOCK_WAIT_SECONDS):
            with FolderWatch(self._log.parent) as folder:
                await folder.until(lambda: self._count() >= self._told)

    def _count(self) -> int:
        return self._log.read_bytes().count(b"still waiting for")


async def _made(url: str) -> None:
    await (await PostgresStore.open(url)).close()
