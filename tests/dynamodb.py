"""Stores on an emulator of DynamoDB, each in a table of its own."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from penstock.model.clock import Clock
from penstock.store.dynamodb import DynamoStore
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
