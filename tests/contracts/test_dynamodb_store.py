"""The DynamoDB store keeps the contract, move by move and in any order of moves."""

from collections.abc import AsyncIterator

import pytest

from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract import SilentStoreContract, StoreContract
from penstock.testing.store_contract.ends import KEEP
from tests.dynamodb import new_store


class TestDynamoStore(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock, retention=KEEP) as store:
            yield store


class TestSilentDynamoStore(SilentStoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock, keep_events=False, retention=KEEP) as store:
            yield store
