"""The registry of a shard: notices, roles (leader election), workers, and which jobs it admits."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
from psycopg.errors import LockNotAvailable

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.errors import Conflict
from penstock.model.ids import first_id
from penstock.model.job import NewJob
from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.submission import Known, Misplaced
from penstock.model.workers import DrainRequest, Seen, Worker
from penstock.store.postgres import arrays
from penstock.store.postgres.arrays import bigints, byteas, texts
from penstock.store.postgres.queries import jobs_by_id
from penstock.store.postgres.statements import Connection, PostgresTransaction, execute, load, query
from penstock.store.rows import Admission, drain_end, drain_request, seen_scope, workers_of

_LOCK = load("lock_admission")
_ADMISSION = load("admission")
_ADMIT = load("admit")
_FOLLOW_RING = load("follow_ring")
_FIND_KEYED = load("find_keyed")
_HAS_KEYS_BEFORE = load("has_keys_before")

# Every submit waits behind a transaction that waits for this lock.
_IMPATIENT = b"SET LOCAL lock_timeout = '1s'"


async def read_admission(tx: PostgresTransaction) -> Admission:
    """Which jobs the shard admits; this cannot change until the transaction ends."""
    ((ring, closed),) = await query(tx.connection, _ADMISSION)
    return Admission(ring, closed)


async def admit(tx: PostgresTransaction, *, jobs: bool) -> None:
    await hold_admission(tx)
    await execute(tx.connection, _ADMIT, {"closed": not jobs})


async def hold_admission(tx: PostgresTransaction) -> None:
    """Block submits until the transaction ends, and wait for those under way. Conflict if one of these does not end."""
    await tx.connection.execute(_IMPATIENT)
    try:
        await execute(tx.connection, _LOCK)
    except LockNotAvailable:
        raise Conflict(
            f"a transaction at {tx.connection.info.host}:{tx.connection.info.port}/{tx.connection.info.dbname} has "
            "submitted jobs and is still open; end it, then try again"
        ) from None


async def follow_ring(tx: PostgresTransaction) -> None:
    """Admit keys by this ring from now on. The caller holds the admission."""
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


_PUT_NOTICES, _CHANGE, _NOTICES = load("put_notices"), load("change_notices"), load("notices")
_ACQUIRE_ROLE, _RELEASE_ROLE = load("acquire_role"), load("release_role")
_PUT_WORKER, _DELETE_WORKER = load("put_worker"), load("delete_worker")
_ASK_TO_DRAIN = load("ask_to_drain")
_WORKERS, _PRUNE_WORKERS = load("workers"), load("prune_workers")

NEVER = -1
"""Before every `told_at`."""


async def put_notices(tx: PostgresTransaction, notices: Sequence[Notice]) -> None:
    async with _following_ring(tx, notices):
        await execute(tx.connection, _PUT_NOTICES, _told(notices))


async def change_notices(tx: PostgresTransaction, changes: Sequence[NoticeChange]) -> list[bool]:
    """One answer each, in order; about each name there is at most one change."""
    notices = [change.notice for change in changes]
    known = [change.known_at for change in changes]
    scope = _told(notices) | {"known": bigints([NEVER if at is None else to_millis(at) for at in known])}
    async with _following_ring(tx, notices):
        kept = {(kind, name) for kind, name in await query(tx.connection, _CHANGE, scope)}
    return [one.about in kept for one in notices]


@asynccontextmanager
async def _following_ring(tx: PostgresTransaction, notices: Sequence[Notice]) -> AsyncIterator[None]:
    """Admit keys by the ring that the body stores. The admission is held first, before any row lock: it may wait."""
    told = any(one.kind == NoticeKind.RING for one in notices)
    if told:
        await hold_admission(tx)
    yield
    if told:
        await follow_ring(tx)


def _told(notices: Sequence[Notice]) -> dict[str, object]:
    return {
        "kinds": texts([one.kind for one in notices]),
        "names": texts([one.name for one in notices]),
        "told": bigints([to_millis(one.told_at) for one in notices]),
        "values": byteas([one.value for one in notices]),
    }


async def notices(connection: Connection) -> list[Notice]:
    rows = await query(connection, _NOTICES)
    return [Notice(kind, name, value, from_millis(told_at)) for kind, name, value, told_at in rows]


async def acquire_role(tx: PostgresTransaction, role: str, holder: str, span: timedelta) -> int | None:
    scope = {"role": role, "holder": holder, "now": tx.now, "held_until": tx.now + millis(span)}
    fences = await query(tx.connection, _ACQUIRE_ROLE, scope)
    return fences[0][0] if fences else None


async def release_role(tx: PostgresTransaction, role: str, holder: str) -> None:
    await execute(tx.connection, _RELEASE_ROLE, {"role": role, "holder": holder})


async def put_worker(tx: PostgresTransaction, worker: Worker) -> DrainRequest | None:
    scope = {"id": worker.id, "now": tx.now, "reported": msgspec.json.encode(worker).decode()}
    ((drain_until,),) = await query(tx.connection, _PUT_WORKER, scope)
    return drain_request(drain_until, tx.now)


async def ask_to_drain(tx: PostgresTransaction, names: Sequence[str], patience: timedelta | None) -> list[str]:
    scope = {"names": texts(names), "until": drain_end(patience, tx.now)}
    return sorted([name for (name,) in await query(tx.connection, _ASK_TO_DRAIN, scope)])


async def delete_worker(tx: PostgresTransaction, worker: str) -> None:
    await execute(tx.connection, _DELETE_WORKER, {"id": worker})


async def workers(connection: Connection, seen: Seen, limit: int | None) -> list[Worker]:
    return workers_of(await query(connection, _WORKERS, seen_scope(seen, limit)))


async def prune_workers(tx: PostgresTransaction, before: datetime, limit: int) -> list[Worker]:
    scope = {"before": to_millis(before), "limit": limit}
    return workers_of(await query(tx.connection, _PRUNE_WORKERS, scope))
