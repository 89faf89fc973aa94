"""The history: counts and times of numbered moves."""

from penstock.model.journal import History, HistoryFilter
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.table import DynamoTable


class DynamoHistory:
    """The history: counts and times of numbered moves."""

    def __init__(self, table: DynamoTable, clock: TableClock, prefix: str) -> None:
        self._table = table
        self._clock = clock
        self._prefix = prefix

    async def read_history(self, where: HistoryFilter) -> History:
        raise NotImplementedError
