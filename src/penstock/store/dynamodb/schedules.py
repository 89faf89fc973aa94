"""Schedules and their ticks."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.table import DynamoTable


class DynamoSchedules:
    """Schedules and their ticks."""

    def __init__(self, table: DynamoTable, clock: TableClock, prefix: str) -> None:
        self._table = table
        self._clock = clock
        self._prefix = prefix

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        raise NotImplementedError

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        raise NotImplementedError

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        raise NotImplementedError

    async def drop_schedule(self, name: str) -> bool:
        raise NotImplementedError

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        raise NotImplementedError

    async def next_tick(self) -> datetime | None:
        raise NotImplementedError

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        raise NotImplementedError

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        raise NotImplementedError
