"""The live feed over several shards: events of one that is away come later, and those of the others do not wait."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.events.cursor import EventCursor, parse_cursor
from penstock.model.ids import ShardId
from penstock.model.journal import Position
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from tests.services.event_readers import SteppedFeed
from tests.services.faulty_shards import FaultyShards


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator(range(2))


@pytest.fixture
async def live(case: FaultyShards, store: ShardedStore, tmp_path: Path) -> AsyncIterator[SteppedFeed]:
    objects = FolderObjects(tmp_path / "objects", case.clock)
    engine = Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(7))
    yield SteppedFeed(engine, case.clock)
    await engine.tickets.close()


async def test_a_live_reader_is_told_and_gets_its_events_once_it_answers(
    case: FaultyShards, store: ShardedStore, live: SteppedFeed
) -> None:
    await live.begin()
    reader = await live.reader().join()
    late = await case.submit(store, 1)
    await case.falls(store, 1)
    await live.step()
    here = await case.submit(store, 0)
    await live.step()
    assert [event["job"] for event in await reader.take_until(1)] == [here.id]
    assert reader.blocks("unavailable") == [{"shards": [1]}]
    await case.heals(store, 1)
    await live.step()
    assert [event["job"] for event in await reader.take_until(2)] == [here.id, late.id]
    await reader.take()
    assert reader.blocks("unavailable")[-1] == {"shards": []}


async def test_a_feed_that_begins_without_it_catches_up_from_there(
    case: FaultyShards, store: ShardedStore, live: SteppedFeed
) -> None:
    await case.submit(store, 1)
    case.clock.advance(timedelta(minutes=1))
    await case.falls(store, 1)
    await live.begin()
    reader = await live.reader().join()
    assert b'"shards":[1]' in reader.chunks[0]
    await case.heals(store, 1)
    late = await case.submit(store, 1)
    await live.step()
    assert [event["job"] for event in await reader.take_until(1)] == [late.id]


async def test_a_reader_that_resumes_keeps_its_own_position_in_it(
    case: FaultyShards, store: ShardedStore, live: SteppedFeed
) -> None:
    first = await case.submit(store, 1)
    case.clock.advance(timedelta(minutes=1))
    begin = EventCursor(case.clock.now(), {ShardId(0): Position(1), ShardId(1): Position(1)})
    await case.falls(store, 1)
    await live.begin()
    reader = await live.reader(begin).join()
    here = await case.submit(store, 0)
    await live.step()
    assert [event["job"] for event in await reader.take_until(1)] == [here.id]
    assert parse_cursor(reader.last_id, "id").positions[ShardId(1)] == Position(1)
    await case.heals(store, 1)
    second = await case.submit(store, 1)
    await live.step()
    events = await reader.take_until(3)
    assert [event["job"] for event in events] == [here.id, first.id, second.id]
    third = await case.submit(store, 1)
    await live.step()
    assert [event["job"] for event in await reader.take_until(4)][3:] == [third.id]
