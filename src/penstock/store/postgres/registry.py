"""What a shard knows besides jobs: notices, roles and workers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.timing import from_millis, millis, to_millis
from penstock.model.workers import Seen, Worker
from penstock.store.postgres.admission import follow_ring, hold_admission
from penstock.store.postgres.arrays import bigints, byteas, texts
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.transaction import PostgresTransaction
from penstock.store.rows import seen_scope, workers_of

_PUT_NOTICES, _CHANGE, _NOTICES = load("put_notices"), load("change_notices"), load("notices")
_ACQUIRE_ROLE, _RELEASE_ROLE = load("acquire_role"), load("release_role")
_PUT_WORKER, _DELETE_WORKER = load("put_worker"), load("delete_worker")
_WORKERS, _PRUNE_WORKERS = load("workers"), load("prune_workers")

NEVER = -1
"""Before every instant at which something was told."""


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
    """Take keys by the ring that is told within. Held first: it may have to wait, and no row is locked meanwhile."""
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


async def put_worker(tx: PostgresTransaction, worker: Worker) -> None:
    scope = {"id": worker.id, "now": tx.now, "reported": msgspec.json.encode(worker).decode()}
    await execute(tx.connection, _PUT_WORKER, scope)


async def delete_worker(tx: PostgresTransaction, worker: str) -> None:
    await execute(tx.connection, _DELETE_WORKER, {"id": worker})


async def workers(connection: Connection, seen: Seen, limit: int | None) -> list[Worker]:
    return workers_of(await query(connection, _WORKERS, seen_scope(seen, limit)))


async def prune_workers(tx: PostgresTransaction, before: datetime, limit: int) -> list[Worker]:
    scope = {"before": to_millis(before), "limit": limit}
    return workers_of(await query(tx.connection, _PRUNE_WORKERS, scope))
