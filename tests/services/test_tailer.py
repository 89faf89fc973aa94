"""Tailers, the live feed and its readers, stepped by hand on a clock that only moves when told."""

import asyncio
from datetime import timedelta

import pytest

from penstock.engine import Engine
from penstock.events import selection
from penstock.events.cursor import EventCursor, parse_cursor
from penstock.events.selection import StreamFilter
from penstock.events.stream import HEARTBEAT, MAX_FLUSHES
from penstock.events.streams import CLOSE_AFTER, Streams
from penstock.events.tailer import FLUSH_EVENTS, LOOK_INTERVAL, RECHECKS, Tailer, pause_after
from penstock.model.ids import ShardId
from penstock.model.journal import EventRetention, Position
from penstock.model.lifecycle import State
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import claim_one, join, pruner, request, submit, success
from tests.services.event_readers import HandReader, SteppedFeed

ZERO = timedelta(0)


@pytest.fixture
async def live(engine: Engine, clock: SimulatedClock) -> SteppedFeed:
    feed = SteppedFeed(engine, clock)
    await join(engine)
    await feed.begin()
    return feed


async def run_job(engine: Engine) -> str:
    job = await submit(engine)
    await engine.worker_api.settle([success(await claim_one(engine))])
    return job.id


async def test_readers_of_one_filter_get_the_same_bytes(live: SteppedFeed, engine: Engine) -> None:
    readers = [await live.reader().join() for _ in range(3)]
    succeeded = StreamFilter(states=frozenset({State.SUCCEEDED}))
    others = [await live.reader(where=succeeded).join() for _ in range(2)]
    await run_job(engine)
    await live.step()
    chunks = [await reader.take() for reader in readers]
    assert all(chunk is chunks[0] for chunk in chunks)
    less = [await reader.take() for reader in others]
    assert less[0] is less[1]
    assert len(others[0].events) == 1
    assert len(readers[0].events) == 3


async def test_an_event_is_encoded_once_for_all_filters(
    live: SteppedFeed, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[object] = []

    def count(data: object, event: str | None = None) -> bytes:
        encoded.append(data)
        return b"data: {}\n\n"

    filters = [StreamFilter(types=frozenset({"add", str(number)})) for number in range(5)]
    readers = [await live.reader(where=where).join() for where in filters]
    monkeypatch.setattr(selection, "block_of", count)
    await run_job(engine)
    await live.step()
    for reader in readers:
        await reader.take()
    assert len(encoded) == 3


async def test_the_id_of_a_flush_follows_its_events(live: SteppedFeed, engine: Engine) -> None:
    """A client that has read a part of a flush reads it again."""
    reader = await live.reader().join()
    await run_job(engine)
    await live.step()
    lines = (await reader.take()).decode().strip().split("\n\n")
    assert [line.partition(":")[0] for line in lines] == ["data", "data", "data", "id"]


async def test_a_bulk_is_cut_into_flushes(live: SteppedFeed, engine: Engine) -> None:
    reader = await live.reader().join()
    await engine.jobs.submit([request() for _ in range(FLUSH_EVENTS + 10)])
    await live.step()
    assert len(await reader.take_until(FLUSH_EVENTS)) == FLUSH_EVENTS
    assert parse_cursor(reader.last_id, "id").positions[ShardId(0)].index == FLUSH_EVENTS
    again = live.reader(parse_cursor(reader.last_id, "id"))
    assert len(await again.take_until(10)) == 10
    assert len({event["id"] for event in reader.events + again.events}) == FLUSH_EVENTS + 10


def test_a_flush_waits_longer_the_more_events_there_are() -> None:
    assert pause_after(1) < timedelta(milliseconds=25)
    assert pause_after(1000) == timedelta(milliseconds=100)


async def test_a_tailer_looks_again_soon_after_a_signal(live: SteppedFeed, engine: Engine) -> None:
    """Another process may have been numbering the entries that the signal was about."""
    tailer = Tailer(engine, engine.store.shards()[0], live.feed)
    assert await tailer.step() == LOOK_INTERVAL
    tailer.hear()
    assert [await tailer.step() for _ in range(4)] == [*RECHECKS, LOOK_INTERVAL]


async def test_a_reader_that_is_far_behind_is_told_from_where_to_ask(live: SteppedFeed, engine: Engine) -> None:
    reader = await live.reader().join()
    for _ in range(MAX_FLUSHES + 5):
        await submit(engine)
        await live.step()
    await reader.take()
    (missed,) = [data for _ in range(2) if (await reader.take()) for data in reader.blocks("missed")][:1]
    assert missed["reason"] == "slow"
    past = live.reader(parse_cursor(missed["after"], "after"))
    events = await past.take_until(MAX_FLUSHES + 4)
    assert reader.events[0]["id"] not in {event["id"] for event in events}
    assert {event["id"] for event in reader.events[1:]} <= {event["id"] for event in events}


async def test_a_reader_ahead_of_the_feed_gets_nothing_twice(
    live: SteppedFeed, engine: Engine, clock: SimulatedClock
) -> None:
    """As one that comes from a server whose tailer was faster."""
    await submit(engine)
    head = await engine.store.shards()[0].number_entries()
    reader = live.reader(EventCursor(clock.now(), {ShardId(0): Position(head + 1)}))
    await reader.take()
    taking = asyncio.ensure_future(reader.take())
    await clock.wait_for_sleepers()
    await live.step()
    second = await submit(engine)
    await live.step()
    await taking
    assert [event["job"] for event in reader.events] == [second.id]


async def test_entries_without_events_are_passed_over_by_readers_and_feed(
    live: SteppedFeed, engine: Engine, clock: SimulatedClock
) -> None:
    await run_job(engine)
    (shard,) = engine.store.shards()
    before = await shard.number_entries()
    await live.step()
    assert live.feed.position(ShardId(0)) == Position(before + 1)
    clock.advance(timedelta(days=60))
    await pruner(engine).step()
    after = await shard.number_entries()
    assert after > before
    await live.step()
    assert live.feed.position(ShardId(0)) == Position(after + 1)
    reader = await live.reader(EventCursor(clock.now(), {ShardId(0): Position(before + 1)})).join()
    job = await submit(engine)
    await live.step()
    assert [event["job"] for event in await reader.take_until(1)] == [job.id]
    ahead = await live.reader(EventCursor(clock.now(), {ShardId(0): Position(after + 2)})).join()
    assert ahead.events == []


async def test_what_the_journal_no_longer_keeps_is_told(
    live: SteppedFeed, engine: Engine, clock: SimulatedClock
) -> None:
    await run_job(engine)
    clock.advance(timedelta(days=8))
    kept = await submit(engine)
    (shard,) = engine.store.shards()
    await shard.number_entries()
    assert await shard.prune_journal(EventRetention(), 1000)
    await live.step()
    reader = live.reader(EventCursor(clock.now(), {ShardId(0): Position(1)}))
    assert [event["job"] for event in await reader.take_until(1)] == [kept.id]
    (missed,) = reader.blocks("missed")
    assert (missed["reason"], missed["since"]) == ("gone", f"{clock.now():%Y-%m-%dT%H:%M:%SZ}")


async def test_a_feed_that_was_cut_off_for_too_long_says_so(
    live: SteppedFeed, engine: Engine, clock: SimulatedClock
) -> None:
    reader = await live.reader().join()
    await run_job(engine)
    clock.advance(timedelta(days=8))
    await submit(engine)
    (shard,) = engine.store.shards()
    await shard.number_entries()
    await shard.prune_journal(EventRetention(), 1000)
    await live.step()
    await reader.take_until(1)
    assert [missed["reason"] for missed in reader.blocks("missed")] == ["gone"]


@pytest.fixture
async def streams(engine: Engine) -> Streams:
    await join(engine)
    return Streams(engine)


async def admit() -> None: ...


async def test_a_quiet_stream_gets_a_heartbeat_with_its_cursor(
    streams: Streams, engine: Engine, clock: SimulatedClock
) -> None:
    stream = await streams.open(StreamFilter(types=frozenset({"none"})), None, admit)
    reader = await HandReader(stream).join()
    assert reader.chunks[0].startswith(b"retry: ")
    clock.advance(HEARTBEAT)
    await streams.step()
    assert (await reader.take()).startswith(b": heartbeat\nid: ")
    await streams.close(stream)


async def test_a_client_that_takes_nothing_is_closed(streams: Streams, clock: SimulatedClock) -> None:
    stuck, idle = [await streams.open(StreamFilter(), None, admit) for _ in range(2)]
    await HandReader(stuck).take()
    reader = await HandReader(idle).join()
    clock.advance(CLOSE_AFTER)
    await streams.step()
    assert (stuck.aborted.done(), idle.aborted.done()) == (True, False)
    await reader.take()
    for stream in (stuck, idle):
        await streams.close(stream)


async def test_tailers_run_only_while_there_are_streams(streams: Streams, engine: Engine) -> None:
    tasks = asyncio.all_tasks()
    stream = await streams.open(StreamFilter(), None, admit)
    assert len(asyncio.all_tasks()) == len(tasks) + 2
    await streams.close(stream)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
