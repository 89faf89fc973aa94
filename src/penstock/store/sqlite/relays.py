"""The state of relays: their positions, the events they have parked, and their delivery logs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import apsw

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.journal import (
    DeliveryRecord,
    Parked,
    ParkedState,
    Position,
    RelayState,
    RelayTotals,
    RelayWrite,
)
from penstock.store.journal import relay_role
from penstock.store.rows import Row, instant, optional_millis
from penstock.store.sqlite.schedules import FOREVER, ceil_millis
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_STATE, _SAVE = load("relay_state"), load("save_relay")
_HOLDS_ROLE = load("holds_role")
_PARK, _UNPARK = Bulk("park"), Bulk("unpark")
_PARKED, _PARKED_OF, _COUNT_PARKED = load("parked"), load("parked_of"), load("count_parked")
_LAST_DELIVERY, _EXTEND_DELIVERY, _ADD_DELIVERY = load("last_delivery"), load("extend_delivery"), load("add_delivery")
_DELIVERIES, _PRUNE_DELIVERIES = load("deliveries"), load("prune_deliveries")
_DROPS = [load(name) for name in ("drop_relay", "drop_parked", "drop_deliveries")]

NEVER_DUE = FOREVER - 1
"""The due time of an event that waits behind another; less than the bound of a read without one."""


def relay_state(connection: apsw.Connection, subscription: str) -> RelayState:
    return _totals(connection, subscription, {}).state


def relay_totals(connection: apsw.Connection, subscription: str) -> RelayTotals:
    return _totals(connection, subscription, dict(query(connection, _COUNT_PARKED, {"subscription": subscription})))


def _totals(connection: apsw.Connection, subscription: str, parked: Mapping[str, int]) -> RelayTotals:
    rows = query(connection, _STATE, {"subscription": subscription})
    number, place, failures, retry_at, delivered, failed = rows[0] if rows else (None, None, 0, None, 0, 0)
    position = None if number is None else Position(number, place)
    return RelayTotals(
        state=RelayState(position=position, failures=failures, retry_at=instant(retry_at)),
        waiting=parked.get(ParkedState.WAITING, 0),
        dead=parked.get(ParkedState.DEAD, 0),
        delivered=delivered,
        failed=failed,
    )


def save_relay(tx: SqliteTransaction, subscription: str, fence: int, write: RelayWrite) -> bool:
    """Store all of it under the fence of the role; False, and nothing, if another holds the role."""
    if not query(tx.connection, _HOLDS_ROLE, {"role": relay_role(subscription), "fence": fence}):
        return False
    state, position = write.state, write.state.position
    scope = {
        "subscription": subscription,
        "number": None if position is None else position.number,
        "place": None if position is None else position.index,
        "failures": state.failures,
        "retry_at": optional_millis(state.retry_at),
        "delivered": sum(one.events for one in write.log if one.delivered),
        "failed": sum(one.events for one in write.log if not one.delivered),
    }
    tx.connection.execute(_SAVE, scope)
    _UNPARK.execute(tx.connection, [(subscription, to_bytes(job), version) for job, version in write.unparked])
    _park(tx, subscription, write.parked, NEVER_DUE)
    _append_log(tx, subscription, write.log)
    return True


def park_again(tx: SqliteTransaction, subscription: str, events: Sequence[Parked]) -> None:
    _park(tx, subscription, events, tx.now)


def _park(tx: SqliteTransaction, subscription: str, events: Iterable[Parked], due_at: int) -> None:
    """Park events; `due_at` is for those that have none."""
    rows = [
        (
            subscription,
            to_bytes(one.job),
            one.version,
            one.state,
            one.attempts,
            due_at if one.due_at is None else to_millis(one.due_at),
            one.error,
            one.event,
        )
        for one in events
    ]
    _PARK.execute(tx.connection, rows)


def _append_log(tx: SqliteTransaction, subscription: str, log: Sequence[DeliveryRecord]) -> None:
    if not log:
        return
    last = query(tx.connection, _LAST_DELIVERY, {"subscription": subscription})
    seq, delivered = last[0] if last else (None, False)
    for record in log:
        if not (delivered and record.delivered):
            ((seq,),) = query(tx.connection, _ADD_DELIVERY, {"subscription": subscription, **_columns(record)})
        else:
            tx.connection.execute(_EXTEND_DELIVERY, {"seq": seq, **_columns(record)})
        delivered = record.delivered


def _columns(record: DeliveryRecord) -> "dict[str, apsw.Binding]":
    return {
        "at": to_millis(record.at),
        "delivered": int(record.delivered),
        "first": record.first,
        "last": record.last,
        "events": record.events,
        "attempt": record.attempt,
        "status": record.status,
        "took": millis(record.took),
        "detail": record.detail,
    }


def read_parked(
    connection: apsw.Connection, subscription: str, state: ParkedState, limit: int, due_before: datetime | None
) -> list[Parked]:
    before = FOREVER if due_before is None else ceil_millis(due_before)
    scope = {"subscription": subscription, "state": state, "before": before, "limit": limit}
    return [_parked_of(row) for row in query(connection, _PARKED, scope)]


def read_parked_of(connection: apsw.Connection, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
    if not jobs:
        return []
    scope = {"subscription": subscription, "jobs": apsw.carray(tuple(map(to_bytes, jobs)))}
    found = [_parked_of(row) for row in query(connection, _PARKED_OF, scope)]
    return sorted(found, key=lambda one: (one.job, one.version))


def _parked_of(row: Row) -> Parked:
    job, version, state, attempts, due_at, error, event = row
    return Parked(
        job=from_bytes(job),
        version=version,
        event=event,
        state=ParkedState(state),
        attempts=attempts,
        due_at=None if due_at == NEVER_DUE else from_millis(due_at),
        error=error,
    )


def deliveries(
    connection: apsw.Connection, subscription: str, before: datetime | None, limit: int
) -> list[DeliveryRecord]:
    scope = {
        "subscription": subscription,
        "before": FOREVER if before is None else ceil_millis(before),
        "limit": limit,
    }
    return [_record_of(row) for row in query(connection, _DELIVERIES, scope)]


def _record_of(row: Row) -> DeliveryRecord:
    at, delivered, first, last, events, attempt, status, took, detail = row
    return DeliveryRecord(
        at=from_millis(at),
        delivered=bool(delivered),
        first=first,
        last=last,
        events=events,
        attempt=attempt,
        status=status,
        took=timedelta(milliseconds=took),
        detail=detail,
    )


def prune_deliveries(tx: SqliteTransaction, until: int, limit: int) -> int:
    tx.connection.execute(_PRUNE_DELIVERIES, {"until": until, "limit": limit})
    return tx.connection.changes()


def drop_relay(tx: SqliteTransaction, subscription: str) -> None:
    for text in _DROPS:
        tx.connection.execute(text, {"subscription": subscription})
