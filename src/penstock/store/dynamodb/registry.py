"""What a shard stores besides jobs: notices, roles and workers.

    item      pk          sk                 index place
    notice    <p>notices  <kind>␀<name>
    role      <p>roles    <role>
    worker    <p>workers  <worker>           <p>worker, by the ten minutes in which it was last seen

`<p>` is the shard's prefix. A worker's index key changes only once in ten minutes, so that a report costs one write.
Its item says exactly when it was last seen.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.shards import RING
from penstock.model.workers import EVER, DrainRequest, Seen, Worker
from penstock.store.dynamodb.admission import Admissions
from penstock.store.dynamodb.conditions import ItemCondition, Update
from penstock.store.dynamodb.keys import AFTER_ALL
from penstock.store.dynamodb.schema import PLACE
from penstock.store.dynamodb.table import ConditionFailed, DynamoTable, SortRange
from penstock.store.dynamodb.values import Item, ItemKey, key_of
from penstock.store.rows import drain_end, drain_request, workers_of

SEEN_STEP = millis(timedelta(minutes=10))
BETWEEN = "\0"
NEVER = -1
"""Before every notice."""

_encode = msgspec.json.Encoder().encode


class DynamoRegistry:
    """Notices, roles and workers of the shard that `prefix` stands for."""

    def __init__(self, table: DynamoTable, prefix: str, admissions: Admissions) -> None:
        self._table = table
        self._admissions = admissions
        self._notices, self._roles, self._workers = f"{prefix}notices", f"{prefix}roles", f"{prefix}workers"
        self._seen = f"{prefix}worker"

    # -- notices

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await asyncio.gather(*(self._put_notice(one) for one in notices))
        await self._follow_ring(notices)

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        """One answer each, in order."""
        stored = [await self._change_notice(change) for change in changes]
        await self._follow_ring([change.notice for change in changes])
        return stored

    async def _follow_ring(self, notices: Sequence[Notice]) -> None:
        """Accept keys by the stored ring from now on; its epoch is the instant at which it was written."""
        about = {one.about for one in notices if one.kind == NoticeKind.RING}
        for found in [await self._table.get(self._notice_key(*one)) for one in about if one[1] == RING]:
            await self._admissions.follow_ring(found["ta"] if found else 0)

    async def _put_notice(self, notice: Notice) -> bool:
        """Whether it is the newest about its name; of two of one instant the one with the larger value is."""
        newer = ItemCondition(
            "attribute_not_exists(pk) OR ta < :told_at OR (ta = :told_at AND vl < :value)",
            told_at=to_millis(notice.told_at),
            value=notice.value or b"",
        )
        return await self._store_notice(notice, newer)

    async def _change_notice(self, change: NoticeChange) -> bool:
        """Store a notice unless a newer one was written since the one that this decision is based on."""
        known_at = NEVER if change.known_at is None else to_millis(change.known_at)
        return await self._store_notice(
            change.notice, ItemCondition("attribute_not_exists(pk) OR ta <= :known_at", known_at=known_at)
        )

    async def _store_notice(self, notice: Notice, condition: ItemCondition) -> bool:
        item = self._notice_item(notice)
        try:
            await self._table.put(item, condition)
        except ConditionFailed as refused:
            # A repetition of our own write, whose first answer was lost, finds it there.
            return refused.old == item
        return True

    def _notice_item(self, notice: Notice) -> Item:
        item: Item = {
            **self._notice_key(*notice.about)._asdict(),
            "ta": to_millis(notice.told_at),
            "vl": notice.value or b"",
        }
        return item | {"wd": True} if notice.value is None else item

    def _notice_key(self, kind: str, name: str) -> ItemKey:
        return ItemKey(self._notices, f"{kind}{BETWEEN}{name}")

    async def notices(self) -> list[Notice]:
        """By kind and name, as of now."""
        return [_notice_of(item) async for item in self._table.walk(self._notices)]

    # -- roles

    def role_key(self, role: str) -> ItemKey:
        return ItemKey(self._roles, role)

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        """The fence; None while another holds it."""
        until = self._table.clock.latest() + millis(span)
        mine = ItemCondition("ho = :holder", holder=holder)
        try:
            held = await self._table.update(Update(self.role_key(role), {"hu": until}, condition=mine))
        except ConditionFailed as refused:
            return await self._take_role(role, holder, until, refused.old)
        return int(held["f"])

    async def _take_role(self, role: str, holder: str, until: int, seen: Item | None) -> int | None:
        """Take a role that no other holds any more."""
        now = self._table.clock.now()
        if seen is not None and seen["hu"] > now:
            return None
        free = ItemCondition("attribute_not_exists(pk) OR hu <= :now", now=now)
        update = Update(self.role_key(role), {"ho": holder, "hu": until}, adds={"f": 1}, condition=free)
        try:
            return int((await self._table.update(update))["f"])
        except ConditionFailed as refused:
            # The first answer to this write may have been lost.
            return int(refused.old["f"]) if refused.old is not None and refused.old["ho"] == holder else None

    async def release_role(self, role: str, holder: str) -> None:
        try:
            mine = ItemCondition("ho = :holder", holder=holder)
            await self._table.update(Update(self.role_key(role), {"hu": 0}, condition=mine))
        except ConditionFailed:
            return

    # -- workers

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        """The answer to the same write tells whether it is asked to drain."""
        now = self._table.clock.now()
        sets = {"rp": _encode(worker), "sn": now, "gp": self._seen, "gs": f"{_seen_step(now)}#{worker.id}"}
        item = await self._table.update(Update(ItemKey(self._workers, worker.id), sets))
        return drain_request(item.get("du"), now)

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        """The earliest end of all requests counts."""
        until = drain_end(patience, self._table.clock.now())
        asked = [name for name in dict.fromkeys(names) if await self._ask_to_drain(name, until)]
        return sorted(asked)

    async def _ask_to_drain(self, name: str, until: int) -> bool:
        """Whether there is such a worker."""
        later = ItemCondition("attribute_exists(pk) AND (attribute_not_exists(du) OR du > :until)", until=until)
        try:
            await self._table.update(Update(ItemKey(self._workers, name), {"du": until}, condition=later))
        except ConditionFailed as refused:
            return refused.old is not None
        return True

    async def delete_worker(self, worker: str) -> None:
        await self._table.delete(ItemKey(self._workers, worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        """Those of a span are found by the index, which does not show a new worker for about a second."""
        if seen == EVER and limit is None:
            return _workers_of([item async for item in self._table.walk(self._workers)])
        found: list[Item] = []
        async for step in self._walk_seen(to_millis(seen.after) + 1, to_millis(seen.until), forward=False):
            found += sorted(step, key=_seen_at, reverse=True)
            if limit is not None and len(found) >= limit:
                break
        return _workers_of(found[:limit])

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        """Delete the longest silent ones, unless they report meanwhile."""
        gone: list[Item] = []
        async for step in self._walk_seen(0, to_millis(before) - 1, forward=True):
            for item in sorted(step, key=_seen_at):
                if len(gone) == limit:
                    return _workers_of(gone)
                if await self._delete_silent(item):
                    gone.append(item)
        return _workers_of(gone)

    async def _walk_seen(self, first: int, last: int, *, forward: bool) -> AsyncIterator[list[Item]]:
        """The workers last seen in a span, as of now: those of one step of the index after those of another."""
        span = SortRange(least=_seen_step(first), most=_seen_step(last) + AFTER_ALL)
        names: list[ItemKey] = []
        step = ""
        async for entry in self._table.walk(self._seen, span, index=PLACE, forward=forward):
            if names and entry["gs"][:STEP_DIGITS] != step:
                yield await self._read_seen(names, first, last)
                names = []
            step = entry["gs"][:STEP_DIGITS]
            names.append(key_of(entry))
        yield await self._read_seen(names, first, last)

    async def _read_seen(self, keys: Iterable[ItemKey], first: int, last: int) -> list[Item]:
        items = await self._table.batch_get(keys)
        return [item for item in items.values() if first <= item["sn"] <= last]

    async def _delete_silent(self, item: Item) -> bool:
        try:
            silent = ItemCondition("sn = :seen", seen=item["sn"])
            return await self._table.delete(key_of(item), silent) is not None
        except ConditionFailed:
            return False


STEP_DIGITS = 13


def _seen_step(at: int) -> str:
    return f"{max(at, 0) // SEEN_STEP * SEEN_STEP:0{STEP_DIGITS}}"


def _seen_at(item: Item) -> int:
    return int(item["sn"])


def _notice_of(item: Item) -> Notice:
    kind, name = item["sk"].split(BETWEEN, 1)
    return Notice(kind, name, None if item.get("wd") else item["vl"], from_millis(item["ta"]))


def _workers_of(items: Sequence[Item]) -> list[Worker]:
    return workers_of((item["rp"], item["sn"]) for item in items)
