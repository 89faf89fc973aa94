from collections.abc import AsyncIterator

import pytest

from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.registry import RegistryContract
from tests.dynamodb import new_store


class TestDynamoRegistry(RegistryContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock) as store:
            yield store
