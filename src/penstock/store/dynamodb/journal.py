"""The journal: numbers for what moves have left in the heads, and reads of it."""

from datetime import datetime

from penstock.model.journal import EventRetention, JournalPage
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.table import DynamoTable


class DynamoJournal:
    """The journal: numbers for what moves have left in the heads, and reads of it."""

    def __init__(self, table: DynamoTable, clock: TableClock, prefix: str) -> None:
        self._table = table
        self._clock = clock
        self._prefix = prefix

    async def number_entries(self) -> int:
        raise NotImplementedError

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        raise NotImplementedError

    async def find_number(self, at: datetime) -> int:
        raise NotImplementedError

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        raise NotImplementedError
