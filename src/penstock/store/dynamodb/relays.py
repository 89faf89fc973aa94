"""The state of relays: their positions, the events they have parked, and their delivery logs.

    item      pk                     sk                     index place
    state     <p>relays              <subscription>
    parked    <p>parked#<name>       <job>#<version>        <p>parked#<name>#<state>, by due time, job and version
    record    <p>deliveries#<name>   number, 12 digits

What a relay has done is one transaction with a check of its role's fence. More than a transaction can hold is written
in several, each with the check: what is parked and logged first, then the position, then what is no longer parked. A
relay that ends in between delivers some events again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from msgspec import Struct

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.errors import StoreUnavailable
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
from penstock.store.dynamodb.conditions import (
    ItemCondition,
    Part,
    Update,
    check_part,
    delete_part,
    put_part,
    update_part,
)
from penstock.store.dynamodb.journal import ceil_millis
from penstock.store.dynamodb.journal_items import JournalItems
from penstock.store.dynamodb.keys import AFTER_ALL, millis_key
from penstock.store.dynamodb.registry import DynamoRegistry
from penstock.store.dynamodb.schema import PLACE
from penstock.store.dynamodb.table import ALL, SortRange, TransactionRefused, chunked
from penstock.store.dynamodb.values import Item, ItemKey, key_of
from penstock.store.journal import relay_role
from penstock.store.rows import instant, optional_millis

SAVE_PARTS = 98
"""How many items one transaction may write, of the hundred that AWS takes, besides the check and the state."""

SAVE_ATTEMPTS = 5
PARTITION_READS = 16
"""For more jobs than this, the parked events between the first and the last are read in one go."""

NEVER_DUE = 10**14 - 1
"""The due time of an event that waits behind another: after every instant, in as many digits."""


class SavedRelay(Struct, frozen=True):
    """A relay's state as it was read; `turn` grows with each write, `record` is the number of its last log record."""

    totals: RelayTotals
    turn: int = 0
    record: int = 0


class DynamoRelays:
    """The relays of one shard."""

    def __init__(self, items: JournalItems, registry: DynamoRegistry, prefix: str) -> None:
        self._items = items
        self._table = items.table
        self._registry = registry
        self._prefix = prefix

    # -- the state

    async def relay_state(self, subscription: str) -> RelayState:
        return (await self._read(subscription)).totals.state

    async def relay_totals(self, subscription: str) -> RelayTotals:
        """What is parked is counted by the index, which may lag about a second."""
        totals = (await self._read(subscription)).totals
        waiting, dead = [await self._count_parked(subscription, state) for state in ParkedState]
        return RelayTotals(
            state=totals.state, waiting=waiting, dead=dead, delivered=totals.delivered, failed=totals.failed
        )

    async def _count_parked(self, subscription: str, state: ParkedState) -> int:
        counted, start = 0, None
        while True:
            partition = self._place(subscription, state)
            page = await self._table.query(partition, index=PLACE, start=start, count=True)
            counted += int(page.items[0]["count"])
            if (start := page.next) is None:
                return counted

    async def _read(self, subscription: str) -> SavedRelay:
        item = await self._table.get(self._state_key(subscription))
        return SavedRelay(RelayTotals(state=RelayState())) if item is None else _saved(item)

    def _state_key(self, subscription: str) -> ItemKey:
        return ItemKey(f"{self._prefix}relays", subscription)

    # -- writing

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        """Store all of it under the fence of the role; False if another holds the role."""
        for _ in range(SAVE_ATTEMPTS):
            known = await self._read(subscription)
            records = await self._records(subscription, known, write.log)
            state = update_part(self._state_update(subscription, known, write, max([known.record, *records])))
            parked = {key_of(item): item for item in self._parked_items(subscription, write.parked, NEVER_DUE)}
            puts = [put_part(item) for item in parked.values()]
            puts += [put_part(self._record_item(subscription, number, one)) for number, one in records.items()]
            unparked = [self._parked_key(subscription, *event) for event in write.unparked]
            deletes = [delete_part(key) for key in dict.fromkeys(unparked) if key not in parked]
            try:
                await self._save(subscription, fence, puts, state, deletes)
            except TransactionRefused as refused:
                if refused.reasons[0] == "ConditionalCheckFailed":
                    return False
            else:
                return True
        raise StoreUnavailable(f"the relay of {subscription!r} is written by others all the time; retry")

    async def _save(
        self, subscription: str, fence: int, puts: Sequence[Part], state: Part, deletes: Sequence[Part]
    ) -> None:
        role = self._registry.role_key(relay_role(subscription))
        guard = check_part(role, ItemCondition("f = :fence", fence=fence))
        if len(puts) + len(deletes) <= SAVE_PARTS:
            batches = [[*puts, state, *deletes]]
        else:
            batches = [*map(list, chunked(puts, SAVE_PARTS)), [state], *map(list, chunked(deletes, SAVE_PARTS))]
        for batch in batches:
            await self._table.transact([guard, *batch], str(uuid4()))

    def _state_update(self, subscription: str, known: SavedRelay, write: RelayWrite, record: int) -> Update:
        """The guard: no other write since the state was read. A position never goes back, and None leaves it."""
        state, before = write.state, known.totals
        same = ItemCondition("tu = :turn", turn=known.turn) if known.turn else ItemCondition("attribute_not_exists(tu)")
        place = max((one for one in (before.state.position, state.position) if one is not None), default=None)
        sets = {
            "nb": None if place is None else place.number,
            "ix": None if place is None else place.index,
            "fl": state.failures,
            "ra": optional_millis(state.retry_at),
            "dv": before.delivered + sum(one.events for one in write.log if one.delivered),
            "fd": before.failed + sum(one.events for one in write.log if not one.delivered),
            "rc": record,
            "tu": known.turn + 1,
        }
        return Update(self._state_key(subscription), sets, condition=same)

    async def drop_relay(self, subscription: str) -> None:
        await self._table.delete(self._state_key(subscription))
        for partition in (self._parked(subscription), self._log(subscription)):
            keys = [key_of(item) async for item in self._table.walk(partition)]
            for some in chunked(keys, PARTITION_READS):
                await asyncio.gather(*map(self._table.delete, some))

    # -- parked events

    def _parked(self, subscription: str) -> str:
        return f"{self._prefix}parked#{subscription}"

    def _place(self, subscription: str, state: ParkedState) -> str:
        return f"{self._parked(subscription)}#{state.value}"

    def _parked_key(self, subscription: str, job: JobId, version: int) -> ItemKey:
        return ItemKey(self._parked(subscription), f"{job}#{version:08}")

    def _parked_items(self, subscription: str, events: Iterable[Parked], due_at: int) -> Iterator[Item]:
        """`due_at` is for those that have none."""
        for one in events:
            key = self._parked_key(subscription, one.job, one.version)
            due = due_at if one.due_at is None else to_millis(one.due_at)
            yield {
                **key._asdict(),
                "gp": self._place(subscription, one.state),
                "gs": f"{millis_key(due)}#{key.sk}",
                "st": one.state.value,
                "due": due,
                "at": one.attempts,
                "er": one.error,
                "ev": one.event,
            }

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        items = list(self._parked_items(subscription, events, self._table.clock.now()))
        for some in chunked(items, PARTITION_READS):
            await asyncio.gather(*map(self._table.put, some))

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        """What the index shows and still is so: an event that was parked just now may come with the next call."""
        before = NEVER_DUE + 1 if due_before is None else ceil_millis(due_before)
        span = ALL if due_before is None else SortRange(most=millis_key(before))
        found: list[Item] = []
        async for items in self._walk_parked(self._place(subscription, state), span, limit):
            found += [item for item in items if item["st"] == state.value and item["due"] < before]
            if len(found) >= limit:
                break
        ordered = sorted(found, key=lambda item: (item["due"], item["sk"]))
        return [_parked_of(item) for item in ordered[:limit]]

    async def _walk_parked(self, partition: str, span: SortRange, limit: int) -> AsyncIterator[list[Item]]:
        start = None
        while True:
            page = await self._table.query(partition, span, index=PLACE, start=start, limit=limit)
            yield list((await self._table.batch_get(map(key_of, page.items))).values())
            if (start := page.next) is None:
                return

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        """As of now: what comes after a parked event of its job must not overtake it."""
        if not jobs:
            return []
        partition, wanted = self._parked(subscription), set(jobs)
        if len(wanted) <= PARTITION_READS:
            spans = [SortRange(prefix=f"{job}#") for job in wanted]
        else:
            spans = [SortRange(least=min(wanted), most=max(wanted) + AFTER_ALL)]
        found = await asyncio.gather(*(self._read_partition(partition, span) for span in spans))
        events = [_parked_of(item) for items in found for item in items if item["st"] == ParkedState.WAITING]
        return sorted((one for one in events if one.job in wanted), key=lambda one: (one.job, one.version))

    async def _read_partition(self, partition: str, span: SortRange) -> list[Item]:
        return [item async for item in self._table.walk(partition, span)]

    # -- the delivery log

    def _log(self, subscription: str) -> str:
        return f"{self._prefix}deliveries#{subscription}"

    async def _records(
        self, subscription: str, known: SavedRelay, log: Sequence[DeliveryRecord]
    ) -> dict[int, DeliveryRecord]:
        """The records to put, by their numbers. A success after a success extends it."""
        number = known.record
        last = await self._table.get(self._record_key(subscription, number)) if log and number else None
        records: dict[int, DeliveryRecord] = {}
        before = None if last is None else _record_of(last)
        for one in log:
            if before is not None and before.delivered and one.delivered:
                before = _extended(before, one)
            else:
                number, before = number + 1, one
            records[number] = before
        return records

    def _record_key(self, subscription: str, number: int) -> ItemKey:
        return ItemKey(self._log(subscription), f"{number:012}")

    def _record_item(self, subscription: str, number: int, record: DeliveryRecord) -> Item:
        at = to_millis(record.at)
        return {
            **self._record_key(subscription, number)._asdict(),
            "at": at,
            "ok": record.delivered,
            "fi": record.first,
            "la": record.last,
            "ev": record.events,
            "an": record.attempt,
            "sc": record.status,
            "tk": millis(record.took),
            "de": record.detail,
            "ttl": self._items.expiry(at, self._items.retention.events),
        }

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        hidden = (await self._items.read_head()).deliveries_until
        most = NEVER_DUE if before is None else ceil_millis(before) - 1
        found: list[DeliveryRecord] = []
        async for item in self._table.walk(self._log(subscription), forward=False, page=max(limit, 1)):
            if item["at"] <= hidden or len(found) == limit:
                break
            if item["at"] <= most:
                found.append(_record_of(item))
        return found


def _saved(item: Item) -> SavedRelay:
    position = Position(item["nb"], item["ix"]) if "nb" in item else None
    state = RelayState(position=position, failures=item["fl"], retry_at=instant(item.get("ra")))
    return SavedRelay(RelayTotals(state=state, delivered=item["dv"], failed=item["fd"]), item["tu"], item["rc"])


def _parked_of(item: Item) -> Parked:
    job, version = item["sk"].split("#")
    return Parked(
        job=JobId(job),
        version=int(version),
        event=item["ev"],
        state=ParkedState(item["st"]),
        attempts=item["at"],
        due_at=None if item["due"] == NEVER_DUE else from_millis(item["due"]),
        error=item.get("er"),
    )


def _extended(before: DeliveryRecord, more: DeliveryRecord) -> DeliveryRecord:
    return DeliveryRecord(
        at=max(before.at, more.at),
        delivered=True,
        first=before.first,
        last=more.last,
        events=before.events + more.events,
        attempt=more.attempt,
        status=more.status,
        detail=more.detail,
        took=more.took,
    )


def _record_of(item: dict[str, Any]) -> DeliveryRecord:
    return DeliveryRecord(
        at=from_millis(item["at"]),
        delivered=item["ok"],
        first=item["fi"],
        last=item["la"],
        events=item["ev"],
        attempt=item["an"],
        status=item.get("sc"),
        detail=item.get("de"),
        took=timedelta(milliseconds=item["tk"]),
    )
