"""Partitions of the ended jobs: one per day of the ids, created ahead, and dropped whole once their retention is over.

A row without a partition goes to the default one. The time in the job's id decides, whenever the job ended: one that
waited for weeks goes to an old partition, which is then kept for it, or to the default one if its own was dropped.
"""

import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import LiteralString

from msgspec import Struct
from psycopg import errors, sql

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.ids import JobId, first_id
from penstock.model.job import Pruned, Retention
from penstock.store.postgres.statements import Connection, PostgresTransaction, load, query

DAY = 86_400_000
DAYS_AHEAD = 3
"""Days for which partitions are created ahead: the store may stay unopened and unpruned for so long."""

WHOLE_JOBS = 100_000
"""The most that a partition may hold to be dropped: the keys, tags and logs of its jobs are looked for in one write.
What is above that goes in batches first."""

RETRY_PAUSE = timedelta(minutes=1)
"""The pause after the table was found in use."""

_NAME = re.compile(r"ended_(\d{8})")
_PARTITIONS = load("partitions")
_UNFIT = load("partition_unfit")
_PAST = load("partition_past")
_CLEAR = load("clear_partition")
_LOCK = b"SELECT pg_advisory_xact_lock(7033520117203106)"
_TRY_LOCK = b"SELECT pg_try_advisory_xact_lock(7033520117203106)"
# A statement that waits for the table's lock makes every later statement wait too.
_IMPATIENT = b"SET LOCAL lock_timeout = '200ms'"
_CREATE = """CREATE TABLE penstock.{} PARTITION OF penstock.ended FOR VALUES FROM ({}) TO ({}) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
)"""
# Readers go on; a settle of a job of that day waits.
_HOLD = "LOCK TABLE ONLY penstock.{} IN SHARE ROW EXCLUSIVE MODE"
_DROP = "DROP TABLE penstock.{}"
_LATER = (errors.LockNotAvailable, errors.QueryCanceled, errors.InsufficientPrivilege, errors.CheckViolation)
"""A partition cannot be created or dropped now. Rows go to the default one then, and are pruned in batches."""

logger = logging.getLogger(__name__)


class Partition(Struct, frozen=True, order=True):
    """The ids made on one day of UTC, counted from the epoch."""

    day: int

    @property
    def name(self) -> str:
        return f"ended_{from_millis(self.day * DAY):%Y%m%d}"

    @property
    def past_at(self) -> int:
        """The first millisecond after it."""
        return (self.day + 1) * DAY

    @property
    def range(self) -> dict[str, JobId]:
        return {"first": first_id(self.day * DAY), "past": first_id(self.past_at)}


class Partitions:
    """Creates and drops partitions; one process of many does it.

    While the table is in use it backs off: waiting for its lock would make every other statement wait too.
    """

    def __init__(self) -> None:
        self._rests_until = 0

    async def make_ahead(self, tx: PostgresTransaction) -> None:
        """Make what is missing of the partitions from today on; what cannot be made now is left to the default one."""
        wanted = [Partition(tx.now // DAY + ahead) for ahead in range(DAYS_AHEAD + 1)]
        if tx.now >= self._rests_until and not set(wanted) <= set(await _list_partitions(tx.connection)):
            async with self._if_free(tx):
                await tx.connection.execute(_LOCK)
                for partition in sorted(set(wanted) - set(await _list_partitions(tx.connection))):
                    await _make(tx, partition)

    async def drop_past(self, tx: PostgresTransaction, keep: Retention) -> Pruned:
        """Drop the oldest partition of which all is past its retention, with keys, tags and logs; all its jobs count.

        None while it is in use, or while another process does the same.
        """
        ((mine,),) = await query(tx.connection, _TRY_LOCK)
        pruned = Pruned(0)
        if mine and tx.now >= self._rests_until:
            for partition in _candidates(await _list_partitions(tx.connection), tx.now, keep):
                if await _is_past(tx, partition, keep):
                    async with self._if_free(tx):
                        pruned = await _drop(tx, partition, keep)
                    break
        return pruned

    @asynccontextmanager
    async def _if_free(self, tx: PostgresTransaction) -> AsyncIterator[None]:
        """A transaction that gives up at once if the table is locked."""
        try:
            async with tx.whole():
                await tx.connection.execute(_IMPATIENT)
                yield
        except _LATER as error:
            self._rests_until = tx.now + millis(RETRY_PAUSE)
            logger.info("partitions of %s are made and dropped later: %s", tx.connection.info.dbname, error)


async def _list_partitions(connection: Connection) -> list[Partition]:
    """The partitions by their names, without the default one."""
    names = [_NAME.fullmatch(name) for (name,) in await query(connection, _PARTITIONS)]
    return sorted(_named(name[1]) for name in names if name)


def _named(date: str) -> Partition:
    return Partition(to_millis(datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC)) // DAY)


def _candidates(there: Sequence[Partition], now: int, keep: Retention) -> Iterator[Partition]:
    """Oldest first. The jobs of a day have not ended before it."""
    until = now - millis(min(keep.succeeded, keep.failed))
    return (partition for partition in there if partition.past_at <= until)


async def _make(tx: PostgresTransaction, partition: Partition) -> None:
    """Create a partition, unless rows of its day are in the default one already."""
    ((unfit,),) = await query(tx.connection, _UNFIT, partition.range)
    if not unfit:
        first, past = map(sql.Literal, partition.range.values())
        text = sql.SQL(_CREATE).format(sql.Identifier(partition.name), first, past)
        await tx.connection.execute(text, prepare=False)


async def _is_past(tx: PostgresTransaction, partition: Partition, keep: Retention) -> bool:
    scope = {
        "succeeded_until": tx.now - millis(keep.succeeded),
        "failed_until": tx.now - millis(keep.failed),
        "anchors_until": tx.now - millis(keep.longest),
        "most": WHOLE_JOBS,
    }
    ((past,),) = await query(tx.connection, _PAST, partition.range | scope)
    return bool(past)


async def _drop(tx: PostgresTransaction, partition: Partition, keep: Retention) -> Pruned:
    """Drop a partition. Its rows are checked again under the lock: a job may just have been added."""
    await _run(tx, _HOLD, partition)
    if not await _is_past(tx, partition, keep):
        return Pruned(0)
    ((jobs, owners),) = await query(tx.connection, _CLEAR, tx.scope | partition.range)
    await _run(tx, _DROP, partition)
    return Pruned(jobs, tuple(owners))


async def _run(tx: PostgresTransaction, text: LiteralString, partition: Partition) -> None:
    await tx.connection.execute(sql.SQL(text).format(sql.Identifier(partition.name)), prepare=False)
