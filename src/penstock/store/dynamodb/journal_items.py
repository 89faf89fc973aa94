"""The items of a shard's journal: its head, and the items that hold its entries.

    item      pk             sk
    head      <p>journal     head
    entries   <p>entries     number of the last entry in it, in 16 digits
    history   <p>history     <length of the span>#<its beginning>#<queue>
    depths    <p>journal     depths

`<p>` is the shard's prefix. Entries are never changed. Once past their retention they are hidden by the head's
`oldest`, and DynamoDB deletes them, free of charge, days later.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

from msgspec import Struct

from penstock.model.clock import millis
from penstock.model.journal import EventRetention
from penstock.store.dynamodb.entries import EntryRow, unpack_entries
from penstock.store.dynamodb.table import DynamoTable, SortRange
from penstock.store.dynamodb.values import Item, ItemKey

DIGITS = 16
PAGE_ITEMS = 10
EXPIRY_SLACK = millis(timedelta(days=2))
"""How much longer than its retention an item stays: until then, the head must have moved past it."""


class JournalHead(Struct, frozen=True):
    """How far the journal is. All times are in milliseconds.

    Of the entries up to `number`, those above `cleared` may still be in the items of their jobs; those up to `folded`
    are in the history, and `turn` grows with each change of the history. `last_at` is the latest time of all entries.
    Deliveries up to `deliveries_until` and spans before `history_since` are past their retention. `silent` is 1 if jobs
    have moved without telling it, so that they have to be counted again.
    """

    number: int = 0
    cleared: int = 0
    oldest: int = 1
    folded: int = 0
    folded_at: int = 0
    turn: int = 0
    last_at: int = 0
    deliveries_until: int = -1
    history_since: int = 0
    silent: int = 0


_NAMES = {
    "number": "n",
    "cleared": "c",
    "oldest": "o",
    "folded": "fo",
    "folded_at": "fa",
    "turn": "tu",
    "last_at": "la",
    "deliveries_until": "du",
    "history_since": "hs",
    "silent": "si",
}


class EntryItem(Struct, frozen=True):
    """Consecutive entries, the first with the number `first`."""

    first: int
    last: int
    last_at: int
    rows: list[EntryRow]

    def numbered(self, after: int, until: int) -> Iterator[tuple[int, EntryRow]]:
        """Its entries with their numbers, of those after one number and up to another."""
        for number, row in enumerate(self.rows, self.first):
            if after < number <= until:
                yield number, row


class JournalItems:
    """Reads the items of the journal of the shard that `prefix` stands for. All reads are consistent."""

    def __init__(self, table: DynamoTable, prefix: str, retention: EventRetention) -> None:
        self.table = table
        self.prefix = prefix
        self.retention = retention
        self.head_key = ItemKey(f"{prefix}journal", "head")
        self.depths_key = ItemKey(f"{prefix}journal", "depths")
        self.entries = f"{prefix}entries"
        self.history = f"{prefix}history"

    async def read_head(self) -> JournalHead:
        item = await self.table.get(self.head_key) or {}
        return JournalHead(**{field: item[name] for field, name in _NAMES.items() if name in item})

    async def walk_entries(self, after: int, until: int) -> AsyncIterator[EntryItem]:
        """The items that hold entries after a number and up to another, in order."""
        if after >= until:
            return
        async for item in self.table.walk(self.entries, SortRange(after=entry_key(after)), page=PAGE_ITEMS):
            if item["fi"] > until:
                return
            yield _entry_item(item)

    async def find_entry(self, number: int) -> EntryItem | None:
        """The item that holds an entry; if that is gone, the next one there is."""
        page = await self.table.query(self.entries, SortRange(least=entry_key(number)), limit=1)
        return _entry_item(page.items[0]) if page.items else None

    async def read_entries(self, after: int, until: int) -> list[tuple[int, EntryRow]]:
        """The entries after a number and up to another, with their numbers."""
        return [one async for item in self.walk_entries(after, until) for one in item.numbered(after, until)]

    def expiry(self, at: int, keep: timedelta) -> int:
        """The second at which DynamoDB may delete an item that is to be kept for so long after an instant."""
        return (at + millis(keep) + EXPIRY_SLACK) // 1000


def head_attributes(**fields: int) -> dict[str, int]:
    """Fields of the head by the names of their attributes."""
    return {_NAMES[field]: value for field, value in fields.items()}


def entry_key(number: int) -> str:
    return f"{number:0{DIGITS}}"


def _entry_item(item: Item) -> EntryItem:
    return EntryItem(item["fi"], int(item["sk"]), item["la"], unpack_entries(item["b"]))
