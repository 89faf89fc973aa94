"""Penstock on a shard that has years behind it: millions of finished jobs, and a million that are due in an hour."""

import asyncio
import os
import shutil
from pathlib import Path

import apsw

from peers.penstock import PenstockEmbedded
from penstock.model.clock import SystemClock, to_millis
from penstock.store.sqlite import SqliteStore

FINISHED = int(os.environ.get("BENCH_FINISHED", "5000000"))
SCHEDULED = int(os.environ.get("BENCH_SCHEDULED", "1000000"))
STEP = 200_000
HOUR = 3_600_000
PARAMS = '{"i":1,"t":1.0,"user":"someone@example.org","pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}'

# Ids are UUIDv7 in order of time, as in life: what is old lies together.
_FILL = """
WITH RECURSIVE number (i) AS (SELECT :start UNION ALL SELECT i + 1 FROM number WHERE i < :start + :count - 1)
INSERT INTO jobs (id, type, queue, state, priority, due_at, created_at, params,
                  attempt, fence, started_at, completed_at, worker, result)
SELECT CAST(unhex(printf('%012x7000', :first + i / 100)) || unhex(printf('80%014x', i * 7919)) AS BLOB),
       'noop', 'noop', :state, 5, coalesce(:due_at, :first + i / 100), :first + i / 100, CAST(:params AS BLOB),
       :ended, :ended, iif(:ended, :first + i / 100, NULL), iif(:ended, :first + i / 100, NULL),
       iif(:ended, 'w', NULL), iif(:ended, CAST('null' AS BLOB), NULL)
FROM number
"""


def grown(place: Path) -> Path:
    """The database, made once."""
    if not place.exists():
        making = place.with_suffix(".making")
        for leftover in place.parent.glob(f"{making.name}*"):
            leftover.unlink()
        asyncio.run(_found(making))
        _fill(making)
        making.rename(place)
    return place


async def _found(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


def _fill(path: Path) -> None:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000")
    now = to_millis(SystemClock().now())
    _add(database, FINISHED, state="succeeded", first=now - 72 * HOUR, due_at=None, ended=1)
    _add(database, SCHEDULED, state="scheduled", first=now - 24 * HOUR, due_at=now + HOUR, ended=0)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _add(database: apsw.Connection, jobs: int, **row: object) -> None:
    for start in range(0, jobs, STEP):
        scope = {"start": start, "count": min(STEP, jobs - start), "params": PARAMS, **row}
        with database:
            database.execute(_FILL, scope)
    database.execute("INSERT INTO counts VALUES ('noop', 'noop', ?, ?)", (row["state"], jobs))


class PenstockGrown(PenstockEmbedded):
    def server(self) -> None:
        data = Path(os.environ["BENCH_SERVER_DATA"])
        data.mkdir(parents=True, exist_ok=True)
        source = grown(Path(os.environ["BENCH_DATA"]) / f"grown-{FINISHED}-{SCHEDULED}.db")
        shutil.copyfile(source, data / "penstock.db")
        os.sync()
        super().server()


ADAPTER = PenstockGrown()
