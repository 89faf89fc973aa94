"""Closing a shard, following the ring, and what keys are asked for when the ring has changed."""

from collections.abc import Sequence
from datetime import datetime

from psycopg.errors import LockNotAvailable

from penstock.model.errors import Conflict
from penstock.model.ids import first_id
from penstock.model.job import NewJob
from penstock.model.submission import Known, Misplaced
from penstock.model.timing import to_millis
from penstock.store.admission import Admission
from penstock.store.postgres import arrays
from penstock.store.postgres.reads import jobs_by_id
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.transaction import PostgresTransaction

_LOCK = load("lock_admission")
_ADMISSION = load("admission")
_ADMIT = load("admit")
_FOLLOW_RING = load("follow_ring")
_FIND_KEYED = load("find_keyed")
_HAS_KEYS_BEFORE = load("has_keys_before")

# All submits wait behind whoever waits for this lock.
_IMPATIENT = b"SET LOCAL lock_timeout = '1s'"


async def read_admission(tx: PostgresTransaction) -> Admission:
    """What the shard takes; it stays so until the transaction ends."""
    ((ring, closed),) = await query(tx.connection, _ADMISSION)
    return Admission(ring, closed)


async def admit(tx: PostgresTransaction, *, jobs: bool) -> None:
    await hold_admission(tx)
    await execute(tx.connection, _ADMIT, {"closed": not jobs})


async def hold_admission(tx: PostgresTransaction) -> None:
    """Let nothing be submitted until the transaction ends; what was, is there. Conflict if one does not end."""
    await tx.connection.execute(_IMPATIENT)
    try:
        await execute(tx.connection, _LOCK)
    except LockNotAvailable:
        raise Conflict(
            f"a transaction at {tx.connection.info.host}:{tx.connection.info.port}/{tx.connection.info.dbname} has "
            "submitted jobs and is still open; end it, then try again"
        ) from None


async def follow_ring(tx: PostgresTransaction) -> None:
    """Take keys from now on by the ring that was told; the admission is held."""
    await execute(tx.connection, _FOLLOW_RING)


async def find_keyed(connection: Connection, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
    """One answer each, in order. A key whose job is pruned between the two statements is free."""
    keys = arrays.texts([new.key for new in jobs if new.key is not None])
    rows = await query(connection, _FIND_KEYED, {"keys": keys})
    by_key = {key: (job, fingerprint) for _, key, job, fingerprint in rows if key is not None}
    found = await jobs_by_id(connection, [job for job, _ in by_key.values()])
    answers: list[Known | Misplaced | None] = []
    for new in jobs:
        job, fingerprint = by_key.get(new.key or "", (None, b""))
        if new.ring != rows[0][0]:
            answers.append(Misplaced(new))
        else:
            answers.append(Known(found[job], conflict=fingerprint != new.fingerprint) if job in found else None)
    return answers


async def has_keys_before(connection: Connection, at: datetime) -> bool:
    ((found,),) = await query(connection, _HAS_KEYS_BEFORE, {"before": first_id(to_millis(at))})
    return bool(found)
