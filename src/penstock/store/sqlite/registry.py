"""What a shard knows besides jobs: declared types, paused queues, workers."""

from collections.abc import Sequence

import apsw
import msgspec

from penstock.model.timing import from_millis
from penstock.model.workers import JobType, Worker
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.transaction import Transaction

_DECLARE, _TYPES = load("declare"), load("types")
_PAUSE, _RESUME, _PAUSED = load("pause"), load("resume"), load("paused")
_SEE, _FORGET, _WORKERS = load("see"), load("forget"), load("workers")

_type = msgspec.json.Decoder(JobType)
_worker = msgspec.json.Decoder(Worker)


def declare(tx: Transaction, types: Sequence[JobType]) -> None:
    for one in types:
        tx.connection.execute(_DECLARE, {"name": one.name, "declared": msgspec.json.encode(one).decode()})


def types(connection: apsw.Connection) -> list[JobType]:
    return [_type.decode(declared) for (declared,) in query(connection, _TYPES)]


def pause(tx: Transaction, queue: str, *, paused: bool) -> None:
    tx.connection.execute(_PAUSE if paused else _RESUME, {"queue": queue})


def paused(connection: apsw.Connection) -> frozenset[str]:
    return frozenset(queue for (queue,) in query(connection, _PAUSED))


def see(tx: Transaction, worker: Worker) -> None:
    tx.connection.execute(_SEE, {"id": worker.id, "now": tx.now, "reported": msgspec.json.encode(worker).decode()})


def forget(tx: Transaction, worker: str) -> None:
    tx.connection.execute(_FORGET, {"id": worker})


def workers(connection: apsw.Connection) -> list[Worker]:
    rows = query(connection, _WORKERS)
    return [msgspec.structs.replace(_worker.decode(text), seen_at=from_millis(seen_at)) for text, seen_at in rows]
