"""The live digest: one reading for all pages, at most once a second, and none while no page looks."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from starlette.types import ASGIApp

from penstock.config import Settings
from penstock.config.event_settings import EventSettings
from penstock.engine import Engine
from penstock.events.live import LiveFeed, LiveStream
from penstock.model.wire.jobs import QueueItem
from tests.http.api_calls import Client, claim, settle, submit
from tests.http.event_streams import open_stream

LIVE = "/v1/live"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is too long for a test."""
    monkeypatch.setattr("penstock.events.live.READ_EVERY", timedelta(milliseconds=20))
    monkeypatch.setattr("penstock.events.live.HISTORY_EVERY", timedelta(0))


@pytest.fixture
def readings(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time that the queues are read."""
    found: list[int] = []
    original = engine.queues.list

    async def count() -> Sequence[QueueItem]:
        found.append(1)
        return await original()

    monkeypatch.setattr(engine.queues, "list", count)
    return found


async def test_a_digest_has_jobs_workers_fleets_and_the_latest_history(client: Client) -> None:
    await submit(client)
    await settle(client, (await claim(client))[0])
    await submit(client, "add", params={"a": 1})
    digest = (await client.get(LIVE)).json()
    assert digest["jobs"] == {"queued": 1, "succeeded": 1}
    assert {queue["name"]: queue["jobs"] for queue in digest["queues"]} == {
        "sums": {"queued": 1},
        "other": {"succeeded": 1},
    }
    assert digest["queues"][0]["name"] == "sums", "the busiest comes first"
    assert digest["workers"] == {"ready": 1}
    assert digest["capacity"] == 4
    assert [fleet["name"] for fleet in digest["fleets"]] == ["default"]
    assert sum(step["arrived"] for step in digest["recent"]) == 2
    assert digest["missing_shards"] == []


async def test_a_page_is_told_of_what_changes(client: Client, app: ASGIApp) -> None:
    async with open_stream(app, LIVE) as page:
        assert (await page.named("digest"))["jobs"] == {}
        await submit(client)
        while (await page.named("digest"))["jobs"] != {"queued": 1}:
            pass


async def test_many_pages_cost_the_readings_of_one(app: ASGIApp, client: Client, readings: list[int]) -> None:
    async with AsyncExitStack() as opened:
        pages = [await opened.enter_async_context(open_stream(app, LIVE)) for _ in range(5)]
        for page in pages:
            await page.named("digest")
        begun = len(readings)
        await submit(client)
        for page in pages:
            while (await page.named("digest"))["jobs"] != {"queued": 1}:
                pass
        for _ in range(5):
            await client.get(f"{LIVE}?once=true")
        assert len(readings) - begun <= 2 + 5, "one for each turn, not one for each page"


async def test_nothing_is_read_while_no_page_looks(engine: Engine, readings: list[int]) -> None:
    feed = LiveFeed(engine)
    stream = feed.open(engine.store.now)
    assert readings == []
    await feed.step()
    assert len(readings) == 1
    await feed.close(stream)
    assert feed.is_idle


async def test_concurrent_requests_read_once(
    engine: Engine, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.events.live.READ_EVERY", timedelta(seconds=60))
    feed = LiveFeed(engine)
    first, second = await feed.read(), await feed.read()
    assert first is second
    assert len(readings) == 1


async def test_a_slow_page_gets_the_newest_digest_only(engine: Engine) -> None:
    stream = LiveStream(engine.store.now)
    chunks = stream.chunks()
    assert (await anext(chunks)).startswith(b"retry:")
    for number in range(100):
        stream.offer(b"%d" % number)
    assert await anext(chunks) == b"99"
    stream.end()
    assert [chunk async for chunk in chunks] == []


async def test_an_unchanged_digest_is_not_sent_again_at_once(engine: Engine) -> None:
    feed = LiveFeed(engine)
    stream = feed.open(engine.store.now)
    await feed.step()
    chunks = stream.chunks()
    await anext(chunks)
    assert b"event: digest" in await anext(chunks)
    await feed.step()
    stream.end()
    assert [chunk async for chunk in chunks] == []
    await feed.close(stream)


async def test_pages_are_let_go_when_the_server_leaves(client: Client, app: ASGIApp, engine: Engine) -> None:
    async with open_stream(app, LIVE) as page:
        engine.leave()
        await page.rest()
        async with open_stream(app, LIVE) as late:
            assert late.status == 503


async def test_too_many_pages_are_told_to_come_later(client: Client, app: ASGIApp, settings: Settings) -> None:
    async with AsyncExitStack() as opened:
        for _ in range(settings.limits.streams):
            await opened.enter_async_context(open_stream(app, LIVE))
        async with open_stream(app, LIVE) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get(f"{LIVE}?once=true")).status_code == 200


async def test_without_a_journal_there_is_no_history_but_everything_else(client: Client, engine: Engine) -> None:
    engine.history._settings = EventSettings(keep=False)  # noqa: SLF001 - as another start would have it
    await submit(client)
    digest = (await client.get(LIVE)).json()
    assert (digest["recent"], digest["jobs"]) == (None, {"queued": 1})


async def test_of_many_queues_the_busiest_are_told(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.events.live.MOST_QUEUES", 2)
    for queue, jobs in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(jobs):
            await submit(client, queue=queue)
    digest = (await client.get(LIVE)).json()
    assert [queue["name"] for queue in digest["queues"]] == ["b", "c"]
    assert digest["more_queues"] == 3
    assert digest["jobs"] == {"queued": 6}
