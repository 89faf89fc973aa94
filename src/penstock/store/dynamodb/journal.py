"""The journal: `number_entries` copies what jobs have to tell from their own items to numbered entries, exactly once.

Each move leaves what it did in the item of its job, in the same write, and a key in the sparse index `untold`. A pass
of `number_entries` has three steps, and may end between any two writes:

1. It reads the head, finds jobs by the index, and reads them consistently.
2. One transaction adds entries and raises the head's `number`, if that is still the one it has read.
3. It notes in each job up to which of its own entries it was copied (`tn`); then the head's `cleared` is raised.

A head with `cleared` below `number` means that a pass has not come to its end: the next one, of whatever process, does
step 3 for it first, from the entries themselves. So nothing is read for step 2 that was copied before, and of two
passes that have read the same head one is refused. The index only says where to look: it may be late, or show jobs
that have nothing more to tell.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import uuid4

from msgspec.structs import replace

from penstock.model.clock import millis, to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.journal import Entry, EventRetention, JournalPage
from penstock.store.batcher import Batcher
from penstock.store.dynamodb.conditions import ItemCondition, Update, put_part, update_part
from penstock.store.dynamodb.entries import EntryRow, bytes_of, entries_of, pack_entries
from penstock.store.dynamodb.history import DynamoHistory
from penstock.store.dynamodb.items import UNTOLD as UNTOLD_PARTITION
from penstock.store.dynamodb.items import Head, head_of
from penstock.store.dynamodb.journal_items import JournalHead, JournalItems, entry_key, head_attributes
from penstock.store.dynamodb.keys import job_key
from penstock.store.dynamodb.schema import UNTOLD
from penstock.store.dynamodb.statements import Swap
from penstock.store.dynamodb.table import ConditionFailed, TransactionRefused
from penstock.store.dynamodb.values import Item, ItemKey

PASS_JOBS = 500
PASS_BYTES = 200_000
"""What one transaction writes at most; an item holds twice as much."""

HIDE_STEP = millis(timedelta(seconds=10))

CLEAR_ATTEMPTS = 10
"""How often a job that moves meanwhile is looked at again before the pass is left to the next one."""


class DynamoJournal:
    """Numbers and reads the entries of one shard."""

    def __init__(self, items: JournalItems, history: DynamoHistory, *, keep_events: bool) -> None:
        self._items = items
        self._table = items.table
        self._history = history
        self._untold = items.prefix + UNTOLD_PARTITION
        self._keep_events = keep_events
        self._passes: Batcher[None, int] = Batcher(self._run_pass)

    # -- numbering

    async def number_entries(self) -> int:
        """The greatest number. Calls that arrive during a pass share the next one."""
        (number,) = await self._passes.submit([None])
        return number

    async def close(self) -> None:
        """Finish the pass that is under way."""
        await self._passes.close()

    async def _run_pass(self, calls: Sequence[None]) -> list[int]:
        head = await (self._number() if self._keep_events else self._note_silence())
        if self._keep_events and head.silent:
            await self._history.recount(head)
        elif self._keep_events:
            await self._history.fold_when_due(head)
        return [head.number] * len(calls)

    async def _note_silence(self) -> JournalHead:
        """Jobs move without telling it: the counts of the history are not right any more."""
        head = await self._items.read_head()
        if not head.silent:
            await self._table.update(Update(self._items.head_key, head_attributes(silent=1)))
        return head

    async def _number(self) -> JournalHead:
        """Number what the index shows; the head afterwards. If another process numbers meanwhile, leave it the rest."""
        head = await self._finish(await self._items.read_head())
        numbered = head
        async for jobs in self._read_untold():
            for group in _groups(jobs):
                appended = await self._append(numbered, group)
                if appended is None:
                    return await self._items.read_head()
                await self._clear({job.id: job.untold[-1].number for job in group}, group)
                numbered = replace(appended, cleared=appended.number)
        return await self._raise_cleared(numbered) if numbered.number > head.number else numbered

    async def _read_untold(self) -> AsyncIterator[list[Head]]:
        """The jobs that have something to tell, as of now, in groups; those that have waited longest first."""
        start = None
        while True:
            page = await self._table.query(self._untold, index=UNTOLD, start=start, limit=PASS_JOBS)
            found = await self._table.batch_get([ItemKey(item["pk"], item["sk"]) for item in page.items])
            jobs = [head for head in map(head_of, found.values()) if head.untold]
            if jobs:
                yield jobs
            if (start := page.next) is None:
                return

    async def _append(self, head: JournalHead, jobs: Sequence[Head]) -> JournalHead | None:
        """Add what these jobs have to tell after the last number; None if another pass was faster."""
        rows = entries_of((job.id, job.untold) for job in jobs)
        last_at = max(head.last_at, *(row.at for row in rows))
        number = head.number + len(rows)
        item = self._entry_item(head.number + 1, number, last_at, rows)
        raised = head_attributes(number=number, cleared=head.number, last_at=last_at)
        update = Update(self._items.head_key, raised, condition=_still(head))
        try:
            await self._table.transact([update_part(update), put_part(item)], str(uuid4()))
        except TransactionRefused:
            return None
        return replace(head, number=number, cleared=head.number, last_at=last_at)

    def _entry_item(self, first: int, last: int, last_at: int, rows: Sequence[EntryRow]) -> Item:
        expiry = self._items.expiry(self._table.clock.now(), self._items.retention.events)
        return {
            "pk": self._items.entries,
            "sk": entry_key(last),
            "fi": first,
            "la": last_at,
            "b": pack_entries(rows),
            "ttl": expiry,
        }

    async def _finish(self, head: JournalHead) -> JournalHead:
        """Do what a pass that was interrupted has left: note in its jobs what was copied."""
        if head.cleared == head.number:
            return head
        told: dict[JobId, int] = {}
        for _, row in await self._items.read_entries(head.cleared, head.number):
            told |= row.told()
        await self._clear(told)
        return await self._raise_cleared(head)

    async def _clear(self, told: Mapping[JobId, int], known: Iterable[Head] = ()) -> None:
        """Note in each job up to which of its own entries it was copied; `known` are those just read."""
        heads = list(known) or await self._read_heads(told)
        for _ in range(CLEAR_ATTEMPTS):
            left = [head for head in heads if head.told < told[head.id]]
            done = await self._table.execute([_copied(head, told[head.id]) for head in left])
            moved = [head.id for head, cleared in zip(left, done, strict=True) if not cleared]
            if not moved:
                return
            heads = await self._read_heads(moved)
        raise StoreUnavailable("jobs move faster than the journal can follow; the next pass goes on")

    async def _read_heads(self, jobs: Iterable[JobId]) -> list[Head]:
        """As of now; jobs that are gone are left out."""
        found = await self._table.batch_get(map(job_key, jobs))
        return [head_of(item) for item in found.values()]

    async def _raise_cleared(self, head: JournalHead) -> JournalHead:
        behind = ItemCondition("attribute_not_exists(c) OR c < :number", number=head.number)
        # Refused: another process has finished the same pass.
        with suppress(ConditionFailed):
            raised = head_attributes(cleared=head.number)
            await self._table.update(Update(self._items.head_key, raised, condition=behind))
        return replace(head, cleared=head.number)

    # -- reading

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        """As many entries as hold at least `limit` events, if there are so many.

        Items that DynamoDB has deleted although nothing has pruned them show as a gap between numbers: the page ends
        before it, and the next one says what is gone.
        """
        head = await self._items.read_head()
        oldest, read = head.oldest, max(after, head.oldest - 1)
        entries: list[Entry] = []
        events = 0
        async for item in self._items.walk_entries(read, until=head.number):
            if item.first > read + 1:
                if entries:
                    return JournalPage(entries, oldest, head.number)
                oldest = item.first
            for number, row in item.numbered(read, head.number):
                if row.is_event:
                    entries.append(row.numbered(number))
                    events += row.jobs
                if events >= limit:
                    return JournalPage(entries, oldest, head.number)
            read = item.last
        return JournalPage(entries, oldest if entries or read >= head.number else head.number + 1, head.number)

    async def find_number(self, at: datetime) -> int:
        """Bisect the items: the latest time of all entries up to the end of an item grows along them."""
        head, wanted = await self._items.read_head(), ceil_millis(at)
        least, most = head.oldest, head.number + 1
        while least < most:
            middle = (least + most) // 2
            item = await self._items.find_entry(middle)
            if item is None or item.first >= most:
                most = middle
            elif item.last_at < wanted:
                least = item.last + 1
            elif item.rows[0].at >= wanted or item.first > middle:
                most = max(least, item.first)
            else:
                return next(number for number, row in item.numbered(least - 1, most) if row.at >= wanted) - 1
        return least - 1

    # -- pruning

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        """Hide what is past its retention, and make the history coarser; how many entries and spans are no more."""
        head = await self._history.fold(await self._items.read_head())
        now = self._table.clock.now()
        gone = await self._prune_entries(head, now - millis(keep.events), limit)
        await self._hide(head, now - millis(keep.events), now - millis(keep.history))
        return gone + await self._history.coarsen(head, limit)

    async def _hide(self, head: JournalHead, deliveries: int, history: int) -> None:
        """Hide deliveries up to one instant and spans that end before another; not for some seconds more or less."""
        if deliveries < head.deliveries_until + HIDE_STEP and history < head.history_since + HIDE_STEP:
            return
        past = head_attributes(deliveries_until=deliveries, history_since=max(history, 0))
        behind = ItemCondition("attribute_not_exists(du) OR du < :until", until=deliveries)
        with suppress(ConditionFailed):
            await self._table.update(Update(self._items.head_key, past, condition=behind))

    async def _prune_entries(self, head: JournalHead, until: int, limit: int) -> int:
        """Hide entries of `until` and earlier that are in the history, from the oldest on; how many."""
        oldest = await self._first_after(head, until, limit)
        if oldest == head.oldest:
            return 0
        behind = ItemCondition("attribute_not_exists(o) OR o < :oldest", oldest=oldest)
        with suppress(ConditionFailed):
            await self._table.update(Update(self._items.head_key, head_attributes(oldest=oldest), condition=behind))
        return oldest - head.oldest

    async def _first_after(self, head: JournalHead, until: int, limit: int) -> int:
        """The least number of an entry to keep: later than `until`, not folded yet, or `limit` after the oldest."""
        async for item in self._items.walk_entries(head.oldest - 1, until=head.folded):
            for number, row in item.numbered(head.oldest - 1, head.folded):
                if row.at > until or number >= head.oldest + limit:
                    return number
        return max(head.oldest, head.folded + 1)


def ceil_millis(at: datetime) -> int:
    """The first whole millisecond not before an instant: a stored time is before both or neither."""
    return to_millis(at + timedelta(microseconds=999))


def _still(head: JournalHead) -> ItemCondition:
    """The guard of the numbering: no other pass has numbered since the head was read."""
    return ItemCondition("n = :number", number=head.number) if head.number else ItemCondition("attribute_not_exists(n)")


def _groups(jobs: Iterable[Head]) -> Iterator[list[Head]]:
    """The jobs in groups that one transaction can hold."""
    group: list[Head] = []
    size = 0
    for job in jobs:
        more = bytes_of(job.untold)
        if group and size + more > PASS_BYTES:
            yield group
            group, size = [], 0
        group.append(job)
        size += more
    if group:
        yield group


def _copied(head: Head, number: int) -> Swap:
    """Note that a job's own entries up to a number are in the journal, if it is still as it was read.

    `tn` is compared too, since this changes it and not the token: it must never go back.
    """
    rest = any(one.number > number for one in head.untold)
    cleared = {} if rest else {"ut": None, "up": None, "uq": None}
    return Swap(head.key, {"tn": number, **cleared}, {"x": head.token, "tn": head.told})
