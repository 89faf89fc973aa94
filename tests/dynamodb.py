"""Stores on an emulator of DynamoDB, each in a table of its own."""

import itertools
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from penstock.model.clock import Clock
from penstock.store.dynamodb import DynamoStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import StoreStage
from servers.emulators import Emulator
from tests.emulators import dynoxide, use_emulator

_tables = itertools.count()


def new_table() -> str:
    """A name that no other test has used."""
    return f"penstock-{os.getpid()}-{next(_tables)}"


async def open_store(
    clock: Clock | None, *, server: Emulator | None = None, table: str | None = None, **options: Any
) -> DynamoStore:
    """A store, empty unless the table was used before. Its terms of admission are read each time: tests do not wait."""
    options.setdefault("admission_age", timedelta(0))
    with pytest.MonkeyPatch.context() as patch:
        use_emulator(patch, server or dynoxide())
        return await DynamoStore.open(table or new_table(), clock=clock, **options)


@asynccontextmanager
async def new_store(clock: Clock | None, **options: Any) -> AsyncIterator[DynamoStore]:
    """As `open_store`, closed afterwards."""
    store = await open_store(clock, **options)
    try:
        yield store
    finally:
        await store.close()


class Processes:
    """Several stores of one shard, as the processes of a system have them, and a stage for each."""

    def __init__(self, clock: SimulatedClock, opened: AsyncExitStack) -> None:
        self.clock = clock
        self._opened = opened
        self._table = new_table()
        self._seeds = itertools.count()

    async def start(self) -> DynamoStore:
        return await self._opened.enter_async_context(new_store(self.clock, table=self._table))

    async def stage(self) -> StoreStage:
        """A process of its own, that gives other ids than the rest."""
        stage = StoreStage(await self.start(), self.clock)
        stage.rng = random.Random(next(self._seeds))
        return stage
