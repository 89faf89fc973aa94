"""The state of relays: their positions, the events they have parked, and their delivery logs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.ids import JobId
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
from penstock.store.postgres.arrays import bigints, byteas, texts, uuids
from penstock.store.postgres.schedules import FOREVER, ceil_millis
from penstock.store.postgres.statements import Connection, PostgresTransaction, execute, load, query
from penstock.store.rows import Row, instant, optional_millis

_STATE, _SAVE = load("relay_state"), load("save_relay")
_HOLD_ROLE = load("hold_role")
_PARK, _UNPARK = load("park"), load("unpark")
_PARKED, _PARKED_BEFORE, _PARKED_OF = load("parked"), load("parked_before"), load("parked_of")
_COUNT_PARKED = load("count_parked")
_LAST_DELIVERY, _EXTEND_DELIVERY, _ADD_DELIVERY = load("last_delivery"), load("extend_delivery"), load("add_delivery")
_DELIVERIES = load("deliveries")
_DROP = load("drop_relay")


async def relay_state(connection: Connection, subscription: str) -> RelayState:
    return (await _totals(connection, subscription, {})).state


async def relay_totals(connection: Connection, subscription: str) -> RelayTotals:
    parked: dict[str, int] = dict(await query(connection, _COUNT_PARKED, {"subscription": subscription}))
    return await _totals(connection, subscription, parked)


async def _totals(connection: Connection, subscription: str, parked: Mapping[str, int]) -> RelayTotals:
    rows = await query(connection, _STATE, {"subscription": subscription})
    number, index, failures, retry_at, delivered, failed = rows[0] if rows else (None, 0, 0, None, 0, 0)
    position = None if number is None else Position(number, index)
    return RelayTotals(
        state=RelayState(position=position, failures=failures, retry_at=instant(retry_at)),
        waiting=parked.get(ParkedState.WAITING, 0),
        dead=parked.get(ParkedState.DEAD, 0),
        delivered=delivered,
        failed=failed,
    )


async def save_relay(tx: PostgresTransaction, subscription: str, fence: int, write: RelayWrite) -> bool:
    """Store all of it under the fence of the role; False, and nothing, if another holds the role."""
    if not await query(tx.connection, _HOLD_ROLE, {"role": relay_role(subscription), "fence": fence}):
        return False
    await execute(tx.connection, _SAVE, {"subscription": subscription} | _state_columns(write))
    await _unpark(tx, subscription, write.unparked)
    await _park(tx, subscription, write.parked, None)
    await _append_log(tx, subscription, write.log)
    return True


async def park_again(tx: PostgresTransaction, subscription: str, events: Sequence[Parked]) -> None:
    await _park(tx, subscription, events, tx.now)


def _state_columns(write: RelayWrite) -> dict[str, object]:
    state, position = write.state, write.state.position
    return {
        "number": None if position is None else position.number,
        "index": 0 if position is None else position.index,
        "failures": state.failures,
        "retry_at": optional_millis(state.retry_at),
        "delivered": sum(one.events for one in write.log if one.delivered),
        "failed": sum(one.events for one in write.log if not one.delivered),
    }


async def _unpark(tx: PostgresTransaction, subscription: str, gone: Sequence[tuple[JobId, int]]) -> None:
    if gone:
        jobs, versions = zip(*gone, strict=True)
        scope = {"subscription": subscription, "jobs": uuids(jobs), "versions": bigints(versions)}
        await execute(tx.connection, _UNPARK, scope)


async def _park(tx: PostgresTransaction, subscription: str, events: Sequence[Parked], due_at: int | None) -> None:
    """Park events, of one that is named twice the last; `due_at` is for those that have none."""
    rows = list({(one.job, one.version): one for one in events}.values())
    if not rows:
        return
    scope = {
        "subscription": subscription,
        "jobs": uuids([one.job for one in rows]),
        "versions": bigints([one.version for one in rows]),
        "states": texts([one.state for one in rows]),
        "attempts": bigints([one.attempts for one in rows]),
        "due": bigints([due_at if one.due_at is None else to_millis(one.due_at) for one in rows]),
        "errors": texts([None if one.error is None else one.error.replace("\0", "␀") for one in rows]),
        "events": byteas([one.event for one in rows]),
    }
    await execute(tx.connection, _PARK, scope)


async def _append_log(tx: PostgresTransaction, subscription: str, log: Sequence[DeliveryRecord]) -> None:
    if not log:
        return
    last = await query(tx.connection, _LAST_DELIVERY, {"subscription": subscription})
    number, delivered = last[0] if last else (None, False)
    for record in log:
        scope = {"subscription": subscription, "id": number} | _record_columns(record)
        if delivered and record.delivered:
            await execute(tx.connection, _EXTEND_DELIVERY, scope)
        else:
            ((number,),) = await query(tx.connection, _ADD_DELIVERY, scope)
        delivered = record.delivered


def _record_columns(record: DeliveryRecord) -> dict[str, object]:
    return {
        "at": to_millis(record.at),
        "delivered": record.delivered,
        "first": record.first,
        "last": record.last,
        "events": record.events,
        "attempt": record.attempt,
        "status": record.status,
        "took": millis(record.took),
        "detail": None if record.detail is None else record.detail.replace("\0", "␀"),
    }


async def read_parked(
    connection: Connection, subscription: str, state: ParkedState, limit: int, due_before: datetime | None
) -> list[Parked]:
    scope: dict[str, object] = {"subscription": subscription, "state": state, "limit": limit}
    if due_before is None:
        return [_parked_of(row) for row in await query(connection, _PARKED, scope)]
    scope["before"] = ceil_millis(due_before)
    return [_parked_of(row) for row in await query(connection, _PARKED_BEFORE, scope)]


async def read_parked_of(connection: Connection, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
    if not jobs:
        return []
    scope = {"subscription": subscription, "jobs": uuids(jobs)}
    return [_parked_of(row) for row in await query(connection, _PARKED_OF, scope)]


def _parked_of(row: Row) -> Parked:
    job, version, state, attempts, due_at, error, event = row
    return Parked(
        job=job,
        version=version,
        event=event,
        state=ParkedState(state),
        attempts=attempts,
        due_at=instant(due_at),
        error=error,
    )


async def deliveries(
    connection: Connection, subscription: str, before: datetime | None, limit: int
) -> list[DeliveryRecord]:
    bound = FOREVER if before is None else ceil_millis(before)
    scope = {"subscription": subscription, "before": bound, "limit": limit}
    return [_record_of(row) for row in await query(connection, _DELIVERIES, scope)]


def _record_of(row: Row) -> DeliveryRecord:
    at, delivered, first, last, events, attempt, status, took, detail = row
    return DeliveryRecord(
        at=from_millis(at),
        delivered=delivered,
        first=first,
        last=last,
        events=events,
        attempt=attempt,
        status=status,
        took=timedelta(milliseconds=took),
        detail=detail,
    )


async def drop_relay(tx: PostgresTransaction, subscription: str) -> None:
    await execute(tx.connection, _DROP, {"subscription": subscription})
