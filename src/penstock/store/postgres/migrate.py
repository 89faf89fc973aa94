"""Brings a database up to the schema of this code by numbered migrations, each applied once, by one process of many.

A migration that only adds leaves older code working, and says nothing more. One that older code could not work with
begins with a line `-- min_version: 7`: code that knows fewer than seven migrations then refuses the database.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files

import psycopg
from msgspec import Struct

from penstock.model.errors import StoreUnavailable
from penstock.store.postgres.connection import Connector, PostgresAddress, unavailable
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.statements import Connection
from penstock.store.rows import Row

CONNECT = timedelta(seconds=10)

# The key of the advisory lock: any number, but the same in every version.
_LOCK = "SELECT pg_advisory_xact_lock(7033520117203104)"
_UNHURRIED = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
# An ALTER TABLE that waits for a long transaction makes every later statement wait too.
_IMPATIENT = "SET LOCAL lock_timeout = '30s'"
# Read from the catalog's tables: the session's name cache may be older than the lock it has just taken.
_IS_THERE = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'penstock' AND tablename = 'migrations')"
_APPLIED = "SELECT number, name, checksum, min_version FROM penstock.migrations ORDER BY number"
FOUNDATION = """
CREATE SCHEMA IF NOT EXISTS penstock;
CREATE TABLE IF NOT EXISTS penstock.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    min_version integer NOT NULL,
    applied_at bigint NOT NULL
);
"""

_MIN_VERSION = re.compile(r"^-- min_version: (\d+)$", re.MULTILINE)


class Applied(Struct, frozen=True):
    """A migration as recorded in the database. Code that lacks migration `min_version` cannot use the database."""

    number: int
    name: str
    checksum: str
    min_version: int


class Migration(Struct, frozen=True):
    """A migration as this code brings it."""

    number: int
    name: str
    text: str

    def applied(self) -> Applied:
        """What is remembered of it."""
        told = _MIN_VERSION.search(self.text)
        checksum = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return Applied(self.number, self.name, checksum, int(told[1]) if told else 0)


class MigrationStatus(Struct, frozen=True):
    """The state of a database: the migrations it has, also those of newer code, and those it lacks of this code."""

    applied: tuple[Applied, ...]
    pending: tuple[Migration, ...]


def migrations() -> tuple[Migration, ...]:
    """All that this code brings, in order."""
    folder = files("penstock.store.postgres") / "migrations"
    found = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(
        Migration(int(name.partition("_")[0]), name.removesuffix(".sql"), entry.read_text("utf-8"))
        for name, entry in found
    )


async def status(connection: Connection, known: Sequence[Migration] | None = None) -> MigrationStatus:
    """Changes nothing. StoreUnavailable if this code cannot use the database, whatever is applied to it."""
    known = migrations() if known is None else known
    async with connection.transaction():
        applied = await _read_applied(connection)
    _check(applied, known)
    numbers = {one.number for one in applied}
    return MigrationStatus(applied, tuple(one for one in known if one.number not in numbers))


async def migrate(connection: Connection, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply what is missing, each migration in a transaction of its own; those that this call applied.

    Another process that migrates at the same time waits, and then finds it done.
    """
    pending = (await status(connection, known)).pending
    return [migration for migration in pending if await _apply(connection, migration)]


async def require(connection: Connection) -> None:
    """Return if the database has all that this code needs; StoreUnavailable says what to do if not."""
    if pending := (await status(connection)).pending:
        raise StoreUnavailable(f"the database lacks {named(pending)}: run `penstock db migrate`")


async def bring_up_to_date(url: str, connections: ConnectionPool, *, allowed: bool) -> None:
    """For a store that is being opened. Checking has the deadline of a call; migrating, here or elsewhere, has none.

    StoreUnavailable if something is missing and it is not `allowed` to migrate.
    """
    if not allowed:
        await connections.run(require)
    elif (await connections.run(status)).pending:
        async with connect(url) as connection:
            await migrate(connection)


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Connection]:
    """A connection for migrating a database without opening a store."""
    address = PostgresAddress.parse(url)
    try:
        async with await Connector(address, CONNECT).connect() as connection:
            yield connection
    except psycopg.Error as error:
        raise unavailable(address, error) from error


def script(pending: Iterable[Migration]) -> str:
    """What `migrate` would run, to be read or run by hand as one script."""
    return "\n".join(_whole(one) for one in pending)


def named(some: Sequence[Migration | Applied]) -> str:
    """The migrations, named in words."""
    noun = "migration" if len(some) == 1 else "migrations"
    return f"{noun} {', '.join(one.name for one in some)}"


async def _apply(connection: Connection, migration: Migration) -> bool:
    """Apply one migration. The lock belongs to the transaction, so that it also works behind PgBouncer."""
    async with connection.transaction():
        await _run(connection, _UNHURRIED)
        await _run(connection, _LOCK)
        if migration.number in {one.number for one in await _read_applied(connection)}:
            return False
        await _run(connection, _IMPATIENT)
        await _run(connection, "\n".join((FOUNDATION, migration.text, _recorded(migration))))
        return True


async def _read_applied(connection: Connection) -> tuple[Applied, ...]:
    ((there,),) = await (await _run(connection, _IS_THERE)).fetchall()
    return tuple(Applied(*row) for row in await (await _run(connection, _APPLIED)).fetchall()) if there else ()


async def _run(connection: Connection, text: str) -> psycopg.AsyncCursor[Row]:
    """Run a script of many statements, which cannot be prepared."""
    return await connection.execute(text.encode(), prepare=False)


def _check(applied: Sequence[Applied], known: Sequence[Migration]) -> None:
    newest = max((one.number for one in known), default=0)
    needed = max(applied, key=lambda one: one.min_version, default=None)
    if needed is not None and needed.min_version > newest:
        raise StoreUnavailable(
            f"the database has migration {needed.name}, which this Penstock (up to {newest:04}) cannot work with: "
            "install the newer Penstock that made it"
        )
    ours = {one.number: one.applied() for one in known}
    changed = [one for one in applied if one.number in ours and one != ours[one.number]]
    if changed:
        raise StoreUnavailable(
            f"the database was made by another build of Penstock: its {named(changed)} is not the one of this code; "
            "use the Penstock that made it, or another database"
        )


def _recorded(migration: Migration) -> str:
    """The statement that records the migration. Nothing in it comes from outside this code."""
    one = migration.applied()
    return (
        "INSERT INTO penstock.migrations (number, name, checksum, min_version, applied_at)\n"
        f"VALUES ({one.number}, '{one.name}', '{one.checksum}', {one.min_version}, "
        "floor(extract(epoch FROM clock_timestamp()) * 1000));"
    )


def _whole(migration: Migration) -> str:
    """One migration as a transaction that records itself."""
    parts = ("BEGIN;", f"{_LOCK};", FOUNDATION.strip(), migration.text.strip(), _recorded(migration), "COMMIT;")
    return "\n".join((f"-- {migration.name}", *parts, ""))
