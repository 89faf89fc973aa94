"""Closing a shard, and what its keys are asked for when the ring has changed."""

from collections.abc import Sequence
from datetime import datetime

import apsw

from penstock.model.ids import first_id, to_bytes
from penstock.model.job import NewJob
from penstock.model.submission import Known, Misplaced
from penstock.model.timing import to_millis
from penstock.store.sqlite.statements import load
from penstock.store.sqlite.submit import SqliteExisting
from penstock.store.sqlite.transaction import SqliteTransaction

_ADMIT = load("admit")
_HAS_KEYS_BEFORE = load("has_keys_before")


def admit(tx: SqliteTransaction, *, jobs: bool) -> None:
    tx.connection.execute(_ADMIT, {"closed": int(not jobs)})


def find_keyed(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
    """One answer each, in order."""
    met = SqliteExisting(tx, jobs)
    return [met.by_key(new) if new.ring == tx.admission.ring else Misplaced(new) for new in jobs]


def has_keys_before(connection: apsw.Connection, at: datetime) -> bool:
    return bool(connection.execute(_HAS_KEYS_BEFORE, {"before": to_bytes(first_id(to_millis(at)))}).get)
