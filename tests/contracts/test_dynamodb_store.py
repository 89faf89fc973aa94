"""The DynamoDB store keeps the contract, move by move and in any order of moves."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from hypothesis import settings

from penstock.model.ids import ShardId
from penstock.model.job import Retention
from penstock.model.shards import ShardMember, shard_map
from penstock.orchestrator import ShardedStore
from penstock.store.seam import Shard, Store
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract import SilentStoreContract, StoreContract
from penstock.testing.store_contract.admission import AdmissionContract
from penstock.testing.store_contract.dispatch import DispatchContract
from penstock.testing.store_contract.journal import JournalContract
from penstock.testing.store_contract.leases import LeaseContract
from penstock.testing.store_contract.reads import ReadContract
from penstock.testing.store_contract.stage import KEEP
from penstock.testing.store_contract.submits import SubmitContract
from penstock.testing.store_contract.tick_machine import tick_machine
from penstock.testing.store_contract.ticks import TickContract
from penstock.testing.store_machine import machine
from penstock.testing.store_model import KEEP as MODEL_KEEP
from tests.dynamodb import new_store, new_table, open_store
from tests.emulators import ministack


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


class TestOnMinistack(SubmitContract, LeaseContract, TickContract):
    """What concerns keys, claims, leases and ticks on a second emulator."""

    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Shard]:
        async with new_store(clock, server=ministack(), retention=KEEP) as store:
            yield store


TestDynamoMachine = machine(partial(new_store, retention=MODEL_KEEP)).TestCase
TestDynamoMachine.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)

TestDynamoTickMachine = tick_machine(new_store).TestCase
TestDynamoTickMachine.settings = settings(max_examples=6, stateful_step_count=25, deadline=None)


@asynccontextmanager
async def over_three_prefixes(clock: SimulatedClock, retention: Retention = MODEL_KEEP) -> AsyncIterator[Store]:
    """Three shards in one table."""
    table = new_table()

    async def open_shard(number: ShardId, url: str) -> Shard:
        return await open_store(clock, table=url, shard=number, retention=retention)

    members = [ShardMember(ShardId(number), table) for number in range(3)]
    store = await ShardedStore.open(shard_map(members), open_shard, clock, random.Random(5), patience=None)
    yield store
    await store.close()


class TestOverThreePrefixes(SubmitContract, DispatchContract, ReadContract, AdmissionContract, JournalContract):
    """What may go wrong where shards share a table: routing, order, lists, counts, and whose jobs are whose."""

    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Store]:
        async with over_three_prefixes(clock, KEEP) as store:
            yield store


TestMachineOverThreePrefixes = machine(over_three_prefixes).TestCase
TestMachineOverThreePrefixes.settings = settings(max_examples=4, stateful_step_count=30, deadline=None)

TestTickMachineOverThreePrefixes = tick_machine(partial(over_three_prefixes, retention=Retention())).TestCase
TestTickMachineOverThreePrefixes.settings = settings(max_examples=3, stateful_step_count=25, deadline=None)
