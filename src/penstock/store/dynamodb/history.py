"""The history: entries of the journal summed by spans of time, coarser as they age; and the counts they lead to.

The sums of one queue and span are one item, which is read, added to and put back. Every such change is one transaction
with the head of the journal, whose `turn` it raises: of two changes decided on the same reading one is refused, and
each entry is added once. The counts of the states that are not terminal are kept likewise, up to the last entry that
is added; those of ended jobs are not, since DynamoDB deletes such jobs without a word.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from uuid import uuid4

from msgspec.structs import replace

from penstock.model.clock import millis, to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.journal import FOLDS, NEWEST_SPAN, History, HistoryFilter, HistoryRow, SpanFold
from penstock.store.dynamodb.conditions import ItemCondition, Part, Update, delete_part, put_part, update_part
from penstock.store.dynamodb.entries import EntryRow
from penstock.store.dynamodb.history_rows import (
    Depths,
    Span,
    Sums,
    add_depths,
    add_sums,
    counts_of,
    first_key,
    history_rows,
    pack_depths,
    pack_sums,
    span_of,
    sum_entries,
    unpack_depths,
    unpack_sums,
)
from penstock.store.dynamodb.items import AWAY, DUE, LINE
from penstock.store.dynamodb.journal_items import JournalHead, JournalItems, head_attributes
from penstock.store.dynamodb.schema import PLACE
from penstock.store.dynamodb.table import SortRange, TransactionRefused
from penstock.store.dynamodb.values import ItemKey

FOLD_INTERVAL = millis(timedelta(seconds=10))
FOLD_SPANS = 40
COARSEN_ITEMS = 90
"""How many items one transaction may change, of the hundred that AWS takes: new spans; coarse ones with the fine."""

READ_ATTEMPTS = 10
_LENGTHS = (millis(NEWEST_SPAN), *(millis(fold.coarse) for fold in FOLDS))


class DynamoHistory:
    """Adds up, reads and coarsens the history of one shard."""

    def __init__(self, items: JournalItems) -> None:
        self._items = items
        self._table = items.table

    # -- folding

    async def fold_when_due(self, head: JournalHead) -> None:
        """Add new entries, at most once in FOLD_INTERVAL: reading them needs no fold."""
        if head.folded < head.number and self._table.clock.now() >= head.folded_at + FOLD_INTERVAL:
            await self.fold(head)

    async def fold(self, head: JournalHead) -> JournalHead:
        """Add all entries up to the head's number; the head afterwards. Another process may do so meanwhile."""
        while head.folded < head.number:
            entries = _some(await self._items.read_entries(head.folded, head.number))
            # Entries that DynamoDB has deleted before they were added are lost to the history.
            folded = entries[-1][0] if entries else head.number
            depths = await self._read_depths()
            rows = [row for _, row in entries]
            add_depths(depths, rows)
            parts = [*await self._add(sum_entries(rows)), self._depths_part(depths)]
            now = self._table.clock.now()
            if not await self._change(head, parts, folded=folded, folded_at=now):
                return await self._items.read_head()
            head = replace(head, folded=folded, folded_at=now, turn=head.turn + 1)
        return head

    async def recount(self, head: JournalHead) -> None:
        """Count the jobs themselves, after some have moved while no events were kept. Moves meanwhile may be missed."""
        head = await self.fold(head)
        depths: Depths = Counter()
        for partition in (DUE, LINE, AWAY):
            async for item in self._table.walk(self._items.prefix + partition, index=PLACE):
                depths[item["q"], item["t"], item["st"]] += 1
        await self._change(head, [self._depths_part(depths)], silent=0)

    async def _add(self, more: Mapping[Span, Sums]) -> list[Part]:
        """The parts of a transaction that add sums to their spans."""
        known = await self._read_spans(more)
        for span, sums in more.items():
            add_sums(known.setdefault(span, {}), sums)
        return [self._span_part(span, known[span]) for span in more]

    async def _read_spans(self, spans: Iterable[Span]) -> dict[Span, Sums]:
        found = await self._table.batch_get(self._key(span) for span in spans)
        return {Span.parse(key.sk): unpack_sums(item["b"]) for key, item in found.items()}

    async def _read_depths(self) -> Depths:
        item = await self._table.get(self._items.depths_key)
        return Counter() if item is None else unpack_depths(item["b"])

    def _depths_part(self, depths: Depths) -> Part:
        return put_part({**self._items.depths_key._asdict(), "b": pack_depths(depths)})

    def _span_part(self, span: Span, sums: Sums) -> Part:
        expiry = self._items.expiry(span.at + span.length, self._items.retention.history)
        return put_part({**self._key(span)._asdict(), "b": pack_sums(sums), "ttl": expiry})

    def _key(self, span: Span) -> ItemKey:
        return ItemKey(self._items.history, span.sort_key)

    async def _change(self, head: JournalHead, parts: Sequence[Part], **raised: int) -> bool:
        """Change the history as it was decided on this head; False if it was changed meanwhile."""
        same = ItemCondition("tu = :turn", turn=head.turn) if head.turn else ItemCondition("attribute_not_exists(tu)")
        update = Update(self._items.head_key, head_attributes(turn=head.turn + 1, **raised), condition=same)
        try:
            await self._table.transact([update_part(update), *parts], str(uuid4()))
        except TransactionRefused:
            return False
        return True

    # -- reading

    async def read_history(self, where: HistoryFilter) -> History:
        """What is in the history, the entries that are not yet, and the counts after them, all as of one head."""
        for _ in range(READ_ATTEMPTS):
            head = await self._items.read_head()
            spans = await self._read_since(head, where)
            depths = await self._read_depths()
            entries = [row for _, row in await self._items.read_entries(head.folded, head.number)]
            if (await self._items.read_head()).turn == head.turn:
                add_depths(depths, entries)
                fresh = sum_entries(entries).items()
                rows = [row for span, sums in (*spans, *fresh) for row in history_rows(span, sums)]
                return _answer(where, rows, depths)
        raise StoreUnavailable("the history changes faster than it can be read; ask again")

    async def _read_since(self, head: JournalHead, where: HistoryFilter) -> list[tuple[Span, Sums]]:
        """The spans that end after the filter begins, of each length."""
        since = max(to_millis(where.since), head.history_since)
        found: list[tuple[Span, Sums]] = []
        for length in _LENGTHS:
            keys = SortRange(least=first_key(length, since - length + 1), most=first_key(length + 1, 0))
            async for item in self._table.walk(self._items.history, keys):
                span = Span.parse(item["sk"])
                if where.queue in (None, span.queue):
                    found.append((span, unpack_sums(item["b"])))
        return found

    # -- pruning

    async def coarsen(self, head: JournalHead, limit: int) -> int:
        """Put old spans into longer ones, about `limit` of each length; how many are no more."""
        gone = 0
        for fold in FOLDS:
            changed, head = await self._coarsen(head, fold, limit)
            gone += changed
        return gone

    async def _coarsen(self, head: JournalHead, fold: SpanFold, limit: int) -> tuple[int, JournalHead]:
        fine, coarse = millis(fold.fine), millis(fold.coarse)
        until = self._table.clock.now() - millis(fold.age)
        keys = SortRange(least=first_key(fine, 0), most=first_key(fine, until - until % coarse))
        page = await self._table.query(self._items.history, keys, limit=max(limit, 1))
        spans = {Span.parse(item["sk"]): unpack_sums(item["b"]) for item in page.items}
        gone = 0
        for group in _by_coarse(spans, coarse):
            parts = await self._add(_sums_of(group, spans, coarse))
            if not await self._change(head, [*parts, *(delete_part(self._key(span)) for span in group)]):
                break
            head = replace(head, turn=head.turn + 1)
            gone += len(group)
        return gone, head


def _some(entries: Sequence[tuple[int, EntryRow]]) -> Sequence[tuple[int, EntryRow]]:
    """The first of them, in as many spans as one transaction can change."""
    spans: set[Span] = set()
    for place, (_, row) in enumerate(entries):
        spans.add(span_of(row))
        if len(spans) > FOLD_SPANS:
            return entries[:place]
    return entries


def _by_coarse(spans: Iterable[Span], coarse: int) -> Iterable[list[Span]]:
    """The spans in groups that one transaction can change, each with those that go into the same longer one."""
    into = sorted(spans, key=lambda span: (span.within(coarse), span))
    group: list[Span] = []
    items = 0
    for _, alike in groupby(into, key=lambda span: span.within(coarse)):
        together = list(alike)
        if group and items + len(together) + 1 > COARSEN_ITEMS:
            yield group
            group, items = [], 0
        group += together
        items += len(together) + 1
    if group:
        yield group


def _sums_of(group: Iterable[Span], spans: Mapping[Span, Sums], coarse: int) -> dict[Span, Sums]:
    found: dict[Span, Sums] = {}
    for span in group:
        add_sums(found.setdefault(span.within(coarse), {}), spans[span])
    return found


def _answer(where: HistoryFilter, rows: Iterable[HistoryRow], depths: Depths) -> History:
    wanted = [row for row in rows if _wanted(where, row.queue, row.type) and row.at + row.span > where.since]
    counts = [count for count in counts_of(depths) if _wanted(where, count.queue, count.type)]
    return History(sorted(wanted, key=lambda row: row.at), counts)


def _wanted(where: HistoryFilter, queue: str, type_name: str) -> bool:
    return where.queue in (None, queue) and where.type in (None, type_name)
