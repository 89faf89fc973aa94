"""A process that only reads, as the function `query`, needs no right to write: opening its backends writes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.model.clock import SystemClock
from penstock.objects.s3 import S3Objects
from penstock.store.dynamodb import DynamoStore
from penstock.store.dynamodb.table import DynamoTable
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import StoreStage
from tests.dynamodb import new_store, new_table
from tests.s3 import access, new_url


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call to a table, by its name."""
    seen: list[str] = []
    call = DynamoTable.call

    async def record(self: DynamoTable, action: str, **arguments: Any) -> dict[str, Any]:
        seen.append(action)
        return await call(self, action, **arguments)

    monkeypatch.setattr(DynamoTable, "call", record)
    return seen


async def test_a_table_that_is_in_use_is_opened_and_read_without_a_write(actions: list[str]) -> None:
    table, clock = new_table(), SimulatedClock()
    async with new_store(clock, table=table) as store:
        job = await StoreStage(store, clock).submit()
        actions.clear()
        async with new_store(clock, table=table) as reader:
            assert await _reads(reader, job.id)
    assert set(actions) <= {"GetItem", "BatchGetItem", "Query"}


async def _reads(store: DynamoStore, job: Any) -> bool:
    return (await store.get([job]))[0] is not None and bool(await store.counts())


async def test_a_bucket_that_is_not_probed_at_once_is_probed_by_the_first_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed: list[str] = []

    async def probe(self: S3Objects) -> None:
        probed.append("probed")

    monkeypatch.setattr(S3Objects, "probe", probe)
    objects = await S3Objects.open(new_url(), SystemClock(), access(), probe=False)
    try:
        assert probed == []
        await objects.put("uploads/x", _body(), "text/plain")
        assert probed == ["probed"]
    finally:
        await objects.close()


async def _body() -> AsyncIterator[bytes]:
    yield b"content"
