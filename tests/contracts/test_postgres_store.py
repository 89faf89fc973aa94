"""The PostgreSQL store keeps the contract, move by move and in any order of moves."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import settings

from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract import SilentStoreContract, StoreContract
from penstock.testing.store_contract.tick_machine import tick_machine
from penstock.testing.store_machine import machine
from tests.postgres import VERSIONS, new_store


@pytest.mark.parametrize("version", VERSIONS)
class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock, version: int) -> AsyncIterator[Shard]:
        async with new_store(version, clock) as store:
            yield store


@pytest.mark.parametrize("version", VERSIONS)
class TestSilentPostgresStore(SilentStoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock, version: int) -> AsyncIterator[Shard]:
        async with new_store(version, clock, keep_events=False) as store:
            yield store


TestPostgres18Machine = machine(partial(new_store, 18)).TestCase
TestPostgres18Machine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)

TestPostgres16Machine = machine(partial(new_store, 16)).TestCase
TestPostgres16Machine.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)

TestPostgres18TickMachine = tick_machine(partial(new_store, 18)).TestCase
TestPostgres18TickMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
