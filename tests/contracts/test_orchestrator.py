"""The orchestrator keeps the contract of a store, over files and over databases, in any order of moves."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from hypothesis import settings

from penstock.model.ids import ShardId
from penstock.model.shards import ShardMember, shard_map
from penstock.orchestrator import OpenShard, ShardedStore
from penstock.store.postgres import PostgresStore
from penstock.store.seam import Shard, Store
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.history_machine import history_machine
from penstock.testing.store_contract import StoreContract
from penstock.testing.store_contract.tick_machine import tick_machine
from penstock.testing.store_machine import machine
from tests.postgres import emptied, server

# These tests are about moves, not about the disk; test_sqlite_file.py is.
MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)


@asynccontextmanager
async def orchestrated(
    urls: Iterable[str], open_shard: OpenShard, clock: SimulatedClock
) -> AsyncIterator[ShardedStore]:
    members = [ShardMember(ShardId(number), url) for number, url in enumerate(urls)]
    # Every shard answers here, however busy the machine is.
    store = await ShardedStore.open(shard_map(members), open_shard, clock, random.Random(5), patience=None)
    yield store
    await store.close()


@asynccontextmanager
async def over_two_files(clock: SimulatedClock) -> AsyncIterator[Store]:
    async def open_file(number: ShardId, url: str) -> Shard:
        return await SqliteStore.open(Path(url), shard=number, clock=clock)

    with TemporaryDirectory(dir=MEMORY) as folder:
        async with orchestrated([f"{folder}/{number}.db" for number in range(2)], open_file, clock) as store:
            yield store


class TestOverTwoFiles(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Store]:
        async with over_two_files(clock) as store:
            yield store


TestMachineOverTwoFiles = machine(over_two_files).TestCase
TestMachineOverTwoFiles.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)

TestHistoryMachineOverTwoFiles = history_machine(over_two_files).TestCase
TestHistoryMachineOverTwoFiles.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)

TestTickMachineOverTwoFiles = tick_machine(over_two_files).TestCase
TestTickMachineOverTwoFiles.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


NEWEST = 18


@cache
def databases() -> tuple[str, ...]:
    """Three on one server: what is tested here is not whether they fail apart."""
    return tuple(server(NEWEST).database(f"shard{number}") for number in range(3))


async def _empty(number: int, url: str, statement: bytes) -> None:
    await (await PostgresStore.open(url, shard=ShardId(number))).close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)


@asynccontextmanager
async def over_three_databases(clock: SimulatedClock) -> AsyncIterator[Store]:
    async def open_database(number: ShardId, url: str) -> Shard:
        return await PostgresStore.open(url, shard=number, clock=clock, connections=4)

    # A server dies with the thread that has started it, so that must not be one of the loop's.
    server(NEWEST)
    urls = await asyncio.to_thread(databases)
    statement = await asyncio.to_thread(emptied, NEWEST)
    await asyncio.gather(*(_empty(number, url, statement) for number, url in enumerate(urls)))
    async with orchestrated(urls, open_database, clock) as store:
        yield store


class TestOverThreeDatabases(StoreContract):
    @pytest.fixture
    async def store(self, clock: SimulatedClock) -> AsyncIterator[Store]:
        async with over_three_databases(clock) as store:
            yield store


TestMachineOverThreeDatabases = machine(over_three_databases).TestCase
TestMachineOverThreeDatabases.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)

TestTickMachineOverThreeDatabases = tick_machine(over_three_databases).TestCase
TestTickMachineOverThreeDatabases.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
