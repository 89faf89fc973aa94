"""What the shard accepts (closed or not, and by which ring), and the epoch of its fences.

The three stand in one item. A submit must not cost a transaction, so each process keeps its reading of that item for
`MAX_AGE` and decides by it. A change therefore returns only after MAX_AGE and the longest time of a call: every reading
that was taken before it has run out by then, and every write that was decided on one has ended. Both spans are measured
on monotonic clocks, each within one process, so that no two clocks have to agree.
"""

from datetime import timedelta

from msgspec import Struct

from penstock.model.clock import Clock, SystemClock
from penstock.model.fences import next_epoch
from penstock.store.dynamodb.conditions import Update
from penstock.store.dynamodb.server_clock import TableClock, instant_of
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.values import Item, ItemKey
from penstock.store.rows import Admission

MAX_AGE = timedelta(seconds=1)
CALL_TIME = timedelta(seconds=5)
"""No write is under way for longer: the deadline of a call."""


class ShardTerms(Struct, frozen=True):
    """A reading of the item. `epoch` is that of the fences that are given."""

    admission: Admission
    epoch: int


class Admissions:
    """The shard's terms, read at most every MAX_AGE, and changed."""

    def __init__(
        self,
        table: DynamoTable,
        clock: TableClock,
        prefix: str,
        max_age: timedelta = MAX_AGE,
        timer: Clock | None = None,
    ) -> None:
        self._table = table
        self._clock = clock
        self._key = ItemKey(f"{prefix}admission", "admission")
        self._max_age = max_age
        self.call_time = CALL_TIME
        self._timer = timer or SystemClock()
        self._terms: ShardTerms | None = None
        self._read_at = 0.0

    async def read(self) -> ShardTerms:
        """The terms by which to decide now."""
        asked_at = self._timer.monotonic()
        if self._terms is None or asked_at - self._read_at >= self._max_age.total_seconds():
            terms = _terms_of(await self._table.get(self._key) or {})
            self._terms, self._read_at = terms, asked_at
        return self._terms

    async def admit(self, *, jobs: bool) -> None:
        await self._change(Update(self._key, {"closed": not jobs}))

    async def follow_ring(self, ring: int) -> None:
        """Accept keys by the ring of this epoch from now on."""
        if (await self.read()).admission.ring != ring:
            await self._change(Update(self._key, {"ring": ring}))

    async def raise_epoch(self) -> int:
        """Let all fences from now on be above all that were given; the new epoch."""
        self._terms = None
        before = (await self.read()).epoch
        epoch = next_epoch(before, instant_of(self._clock))
        await self._change(Update(self._key, {"epoch": epoch}))
        return epoch

    async def _change(self, update: Update) -> None:
        await self._table.update(update)
        self._terms = None
        if self._max_age:
            await self._timer.sleep(self._max_age + self.call_time)


def _terms_of(item: Item) -> ShardTerms:
    return ShardTerms(Admission(item.get("ring", 0), item.get("closed", False)), item.get("epoch", 0))
