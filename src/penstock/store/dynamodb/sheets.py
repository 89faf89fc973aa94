"""Sheets: one item per worker that holds the leases it has renewed, so that a beat is one write, however many they are.

    j<job>_<fence>   a lease as last renewed: until, whether the job has begun, its progress
    c<job>_<fence>   the job was asked to cancel
    x<job>_<fence>   the lease was taken away: reclaimed, cancelled by force, or fenced off

A lease holds while the deadline of its claim, in the head, or its entry in the sheet of the head's worker lies ahead.
Every move that takes a running job from its owner, or marks it, writes into the sheet in the same transaction: the next
beat learns of it from its own answer and needs to read no head. A worker that never learnt of a claim does not renew
it: the entries are leases, and not just a sign of life.
"""

import base64
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping

import msgspec
from msgspec import Struct

from penstock.model.ids import JobId, to_bytes
from penstock.store.dynamodb.conditions import ItemCondition, Part, Update, update_part
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.values import Item, ItemKey

KEPT_SECONDS = 86_400
"""How long a sheet stays after its last write."""

STALE_MILLIS = 60_000
"""How long entries and marks stay that the worker does not renew any more; a reaper needs them no longer than that."""

CACHED_SHEETS = 2_000

LEASE, CANCEL, LOST = "j", "c", "x"


class SheetLease(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A lease as its worker last renewed it."""

    until: int
    begun: bool = False
    progress: bytes | None = None


_encode = msgspec.msgpack.Encoder().encode
_lease = msgspec.msgpack.Decoder(SheetLease)


def lease_name(job: JobId, fence: int) -> str:
    """What an entry is named by: short, as sixteen of them must fit into a kilobyte."""
    return f"{base64.b32encode(to_bytes(job)).decode().rstrip('=').lower()}_{fence}"


class Sheet:
    """A worker's sheet as it was read or written last."""

    def __init__(self, item: Item) -> None:
        self._item = item

    def lease(self, job: JobId, fence: int) -> SheetLease | None:
        raw = self.raw(job, fence)
        return None if raw is None else _lease.decode(raw)

    def raw(self, job: JobId, fence: int) -> bytes | None:
        """A lease as it is stored, to be compared."""
        found: bytes | None = self._item.get(LEASE + lease_name(job, fence))
        return found

    def marked(self, mark: str, job: JobId, fence: int) -> bool:
        return mark + lease_name(job, fence) in self._item

    def stale(self, now: int, kept: Container[str], ended: Container[str]) -> tuple[str, ...]:
        """Attributes that a beat removes: of leases that have ended, or were not renewed for a while."""
        return tuple(name for name, value in self._item.items() if _is_stale(name, value, now, kept, ended))


def _is_stale(name: str, value: object, now: int, kept: Container[str], ended: Container[str]) -> bool:
    if name[0] not in {LEASE, CANCEL, LOST} or "_" not in name or name[1:] in kept:
        return False
    until = _lease.decode(value).until if isinstance(value, bytes) else value
    return name[1:] in ended or (isinstance(until, int) and until + STALE_MILLIS <= now)


class Sheets:
    """The sheets of one shard's workers."""

    def __init__(self, table: DynamoTable, prefix: str) -> None:
        self._table = table
        self._prefix = prefix
        self._known: OrderedDict[str, Sheet] = OrderedDict()

    def key(self, worker: str) -> ItemKey:
        return ItemKey(f"{self._prefix}sheet", worker)

    async def read(self, workers: Iterable[str]) -> dict[str, Sheet]:
        """The sheets as of now; an empty one where there is none."""
        names = list(dict.fromkeys(workers))
        items = await self._table.batch_get(self.key(worker) for worker in names)
        return {worker: Sheet(items.get(self.key(worker), {})) for worker in names}

    def known(self, worker: str | None) -> Sheet | None:
        """The sheet as this process has written it last."""
        return None if worker is None else self._known.get(worker)

    async def beat(self, worker: str, leases: Mapping[str, SheetLease], remove: Iterable[str]) -> Sheet:
        """Write leases by name, in one call; the sheet afterwards."""
        sets = {LEASE + name: _encode(lease) for name, lease in leases.items()}
        update = Update(self.key(worker), sets | {"ttl": self._ttl()}, tuple(remove))
        sheet = self._known[worker] = Sheet(await self._table.update(update))
        self._known.move_to_end(worker)
        if len(self._known) > CACHED_SHEETS:
            self._known.popitem(last=False)
        return sheet

    def mark_part(self, head: Head, mark: str, *, seen: Sheet | None = None) -> Part:
        """Part of the transaction that moves a running job: leave a mark for its worker.

        With `seen`, on the condition that the lease is still as it was seen there.
        """
        name = lease_name(head.id, head.fence)
        sets: dict[str, object] = {mark + name: self._table.clock.now(), "ttl": self._ttl()}
        removes = (LEASE + name,) if mark == LOST else ()
        return update_part(Update(self.key(head.worker or ""), sets, removes, condition=_unchanged(name, head, seen)))

    def cancel_part(self, worker: str, heads: Iterable[Head]) -> Part:
        """Part of a transaction that marks several running jobs of one worker for cancelling."""
        marks = {CANCEL + lease_name(head.id, head.fence): self._table.clock.now() for head in heads}
        return update_part(Update(self.key(worker), marks | {"ttl": self._ttl()}))

    def _ttl(self) -> int:
        return self._table.clock.now() // 1000 + KEPT_SECONDS


def _unchanged(name: str, head: Head, seen: Sheet | None) -> ItemCondition | None:
    if seen is None:
        return None
    raw = seen.raw(head.id, head.fence)
    if raw is None:
        return ItemCondition(f"attribute_not_exists(#{LEASE}{name})")
    return ItemCondition(f"#{LEASE}{name} = :lease", lease=raw)
