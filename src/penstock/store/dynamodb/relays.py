"""The state of the shard's relays."""

from collections.abc import Sequence
from datetime import datetime

from penstock.model.ids import JobId
from penstock.model.journal import DeliveryRecord, Parked, ParkedState, RelayState, RelayTotals, RelayWrite
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.table import DynamoTable


class DynamoRelays:
    """The state of the shard's relays."""

    def __init__(self, table: DynamoTable, clock: TableClock, prefix: str) -> None:
        self._table = table
        self._clock = clock
        self._prefix = prefix

    async def relay_state(self, subscription: str) -> RelayState:
        raise NotImplementedError

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        raise NotImplementedError

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        raise NotImplementedError

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        raise NotImplementedError

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        raise NotImplementedError

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        raise NotImplementedError

    async def relay_totals(self, subscription: str) -> RelayTotals:
        raise NotImplementedError

    async def drop_relay(self, subscription: str) -> None:
        raise NotImplementedError
