"""Notices, roles and workers."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock.model.notices import Notice, NoticeChange
from penstock.model.workers import EVER, Seen, Worker
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.table import DynamoTable


class DynamoRegistry:
    """Notices, roles and workers."""

    def __init__(self, table: DynamoTable, clock: TableClock, prefix: str) -> None:
        self._table = table
        self._clock = clock
        self._prefix = prefix

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        raise NotImplementedError

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        raise NotImplementedError

    async def notices(self) -> list[Notice]:
        raise NotImplementedError

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        raise NotImplementedError

    async def release_role(self, role: str, holder: str) -> None:
        raise NotImplementedError

    async def put_worker(self, worker: Worker) -> None:
        raise NotImplementedError

    async def delete_worker(self, worker: str) -> None:
        raise NotImplementedError

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        raise NotImplementedError

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        raise NotImplementedError
