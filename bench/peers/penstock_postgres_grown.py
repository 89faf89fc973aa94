"""Penstock on a PostgreSQL shard with years behind it: millions of finished jobs, a million that are due later."""

import asyncio
import os

import psycopg

from peers.penstock_postgres import PG_URL, PenstockPostgres
from penstock.store.postgres import PostgresStore

FINISHED = int(os.environ.get("BENCH_FINISHED", "5000000"))
SCHEDULED = int(os.environ.get("BENCH_SCHEDULED", "1000000"))
GROWN = f"grown_{FINISHED}_{SCHEDULED}"
HOUR = 3_600_000
PARAMS = '{"i":1,"t":1.0,"user":"someone@example.org","pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}'

# Ids are UUIDv7 in order of time, as in life: what is old lies together.
# ruff: noqa: S608 - what is put together here is ours
_ID = "(lpad(to_hex(%(first)s + i / 100), 12, '0') || '70008' || lpad(to_hex(i * 7919), 15, '0'))::uuid"
_FINISHED = f"""
INSERT INTO penstock.ended (id, seq, type, queue, state, priority, due_at, created_at, started_at, completed_at, params,
                            attempt, fence, losses, owns_objects, worker, result)
SELECT {_ID}, nextval('penstock.job_seq'), 'noop', 'noop', 'succeeded', 5, %(first)s + i / 100, %(first)s + i / 100,
       %(first)s + i / 100, %(first)s + i / 100, %(params)s, 1, 1, 0, false, 'w', 'null'
FROM generate_series(1, %(count)s::bigint) AS number (i)
"""
_SCHEDULED = f"""
INSERT INTO penstock.jobs (id, type, queue, state, priority, due_at, created_at, params)
SELECT {_ID}, 'noop', 'noop', 'scheduled', 5, %(due_at)s, %(first)s + i / 100, %(params)s
FROM generate_series(1, %(count)s::bigint) AS number (i)
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_COUNT = "INSERT INTO penstock.counts (jobs, queue, type, state) VALUES (%s, 'noop', 'noop', %s)"


class PenstockPostgresGrown(PenstockPostgres):
    def empty(self, connection: psycopg.Connection) -> None:
        """A copy of a grown database, which is made once in a run."""
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (GROWN,)).fetchone()
        if known is None:
            _grow(connection)
        connection.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
        connection.execute(f"CREATE DATABASE bench TEMPLATE {GROWN} STRATEGY file_copy")
        os.sync()


def _grow(connection: psycopg.Connection) -> None:
    connection.execute("DROP DATABASE IF EXISTS growing WITH (FORCE)")
    connection.execute("CREATE DATABASE growing")
    url = PG_URL.rsplit("/", 1)[0] + "/growing"
    asyncio.run(_found(url))
    with psycopg.connect(url, autocommit=True) as growing:
        ((now,),) = growing.execute(_NOW).fetchall()
        scope = {"count": FINISHED, "first": now - 72 * HOUR, "params": PARAMS.encode()}
        growing.execute(_FINISHED, scope)
        scope = {"count": SCHEDULED, "first": now - 24 * HOUR, "due_at": now + 24 * HOUR, "params": PARAMS.encode()}
        growing.execute(_SCHEDULED, scope)
        growing.execute(_COUNT, (FINISHED, "succeeded"))
        growing.execute(_COUNT, (SCHEDULED, "scheduled"))
        growing.execute("VACUUM ANALYZE")
    connection.execute(f"ALTER DATABASE growing RENAME TO {GROWN}")


async def _found(url: str) -> None:
    await (await PostgresStore.open(url)).close()


ADAPTER = PenstockPostgresGrown()
