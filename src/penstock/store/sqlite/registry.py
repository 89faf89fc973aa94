"""What a shard stores besides jobs: notices, roles, workers, and which jobs it accepts."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import apsw
import msgspec

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.ids import first_id, to_bytes
from penstock.model.job import NewJob
from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.submission import Known, Misplaced
from penstock.model.workers import DrainRequest, Seen, Worker
from penstock.store.rows import drain_end, drain_request, seen_scope, workers_of
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.submit import SqliteExisting
from penstock.store.sqlite.transaction import SqliteTransaction

_PUT_NOTICES, _CHANGE, _NOTICES = load("put_notices"), load("change_notice"), load("notices")
_FOLLOW_RING = load("follow_ring")
_ACQUIRE_ROLE, _RELEASE_ROLE = load("acquire_role"), load("release_role")
_PUT_WORKER, _DELETE_WORKER = load("put_worker"), load("delete_worker")
_ASK_TO_DRAIN = load("ask_to_drain")
_WORKERS, _PRUNE_WORKERS = load("workers"), load("prune_workers")

_ADMIT, _HAS_KEYS_BEFORE = load("admit"), load("has_keys_before")

NEVER = -1
"""Before every notice."""


def put_notices(tx: SqliteTransaction, notices: Sequence[Notice]) -> None:
    for one in notices:
        scope = {"kind": one.kind, "name": one.name, "told_at": to_millis(one.told_at), "value": one.value}
        tx.connection.execute(_PUT_NOTICES, scope)
    _follow_ring(tx, notices)


def change_notices(tx: SqliteTransaction, changes: Sequence[NoticeChange]) -> list[bool]:
    """One answer each, in order."""
    kept = [bool(query(tx.connection, _CHANGE, _change_of(change))) for change in changes]
    _follow_ring(tx, [change.notice for change in changes])
    return kept


def _follow_ring(tx: SqliteTransaction, notices: Sequence[Notice]) -> None:
    """Accept keys by the ring of the notice from now on."""
    if any(one.kind == NoticeKind.RING for one in notices):
        tx.connection.execute(_FOLLOW_RING)


def _change_of(change: NoticeChange) -> dict[str, object]:
    one, known_at = change.notice, change.known_at
    return {
        "kind": one.kind,
        "name": one.name,
        "told_at": to_millis(one.told_at),
        "value": one.value,
        "known_at": NEVER if known_at is None else to_millis(known_at),
    }


def notices(connection: apsw.Connection) -> list[Notice]:
    rows = query(connection, _NOTICES)
    return [Notice(kind, name, value, from_millis(told_at)) for kind, name, value, told_at in rows]


def acquire_role(tx: SqliteTransaction, role: str, holder: str, span: timedelta) -> int | None:
    scope = {"role": role, "holder": holder, "now": tx.now, "held_until": tx.now + millis(span)}
    fences = query(tx.connection, _ACQUIRE_ROLE, scope)
    return fences[0][0] if fences else None


def release_role(tx: SqliteTransaction, role: str, holder: str) -> None:
    tx.connection.execute(_RELEASE_ROLE, {"role": role, "holder": holder})


def put_worker(tx: SqliteTransaction, worker: Worker) -> DrainRequest | None:
    scope = {"id": worker.id, "now": tx.now, "reported": msgspec.json.encode(worker).decode()}
    ((drain_until,),) = query(tx.connection, _PUT_WORKER, scope)
    return drain_request(drain_until, tx.now)


def ask_to_drain(tx: SqliteTransaction, names: Sequence[str], patience: timedelta | None) -> list[str]:
    until = drain_end(patience, tx.now)
    known = [query(tx.connection, _ASK_TO_DRAIN, {"id": name, "until": until}) for name in names]
    return sorted({name for rows in known for (name,) in rows})


def delete_worker(tx: SqliteTransaction, worker: str) -> None:
    tx.connection.execute(_DELETE_WORKER, {"id": worker})


def workers(connection: apsw.Connection, seen: Seen, limit: int | None) -> list[Worker]:
    return workers_of(query(connection, _WORKERS, seen_scope(seen, limit)))


def prune_workers(tx: SqliteTransaction, before: datetime, limit: int) -> list[Worker]:
    return workers_of(query(tx.connection, _PRUNE_WORKERS, {"before": to_millis(before), "limit": limit}))


def admit(tx: SqliteTransaction, *, jobs: bool) -> None:
    tx.connection.execute(_ADMIT, {"closed": int(not jobs)})


def find_keyed(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
    """One answer each, in order."""
    existing = SqliteExisting(tx, jobs)
    return [existing.by_key(new) if new.ring == tx.admission.ring else Misplaced(new) for new in jobs]


def has_keys_before(connection: apsw.Connection, at: datetime) -> bool:
    return bool(connection.execute(_HAS_KEYS_BEFORE, {"before": to_bytes(first_id(to_millis(at)))}).get)
