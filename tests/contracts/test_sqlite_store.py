"""The SQLite store keeps the contract, move by move and in any order of moves."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from penstock.store.seam import Shard
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.history_machine import history_machine
from penstock.testing.store_contract import SilentStoreContract, StoreContract
from penstock.testing.store_contract.tick_machine import tick_machine
from penstock.testing.store_machine import machine

# These tests are about moves, not about the disk; test_sqlite_file.py is.
MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)


@asynccontextmanager
async def new_store(clock: SimulatedClock, *, keep_events: bool = True) -> AsyncIterator[Shard]:
    with TemporaryDirectory(dir=MEMORY) as folder:
        store = await SqliteStore.open(Path(folder) / "jobs.db", clock=clock, keep_events=keep_events)
        yield store
        await store.close()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock) as store:
            yield store


class TestSilentSqliteStore(SilentStoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock, keep_events=False) as store:
            yield store


TestSqliteMachine = machine(new_store).TestCase
TestSqliteMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)

TestSqliteHistoryMachine = history_machine(new_store).TestCase
TestSqliteHistoryMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

TestSqliteTickMachine = tick_machine(new_store).TestCase
TestSqliteTickMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
