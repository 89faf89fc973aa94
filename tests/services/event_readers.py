"""A live feed that is stepped by hand, and readers of it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec

from penstock.engine import Engine
from penstock.events.cursor import EventCursor
from penstock.events.feed import Feed
from penstock.events.selection import StreamFilter
from penstock.events.stream import EventStream
from penstock.events.tailer import Tailer, begin_at_head
from penstock.model.errors import Unavailable
from penstock.testing.clock import SimulatedClock

WITHIN = 20.0


class SteppedFeed:
    """A feed whose tailers take a step when told to."""

    def __init__(self, engine: Engine, clock: SimulatedClock) -> None:
        self.engine = engine
        self.clock = clock
        self.feed = Feed(engine)
        self._reading = asyncio.Semaphore(4)

    async def begin(self) -> None:
        self.feed.restart()
        await begin_at_head(self.engine, self.feed)

    def reader(self, cursor: EventCursor | None = None, where: StreamFilter | None = None) -> "HandReader":
        stream = EventStream(self.engine, self.feed, self._reading, where or StreamFilter(), cursor)
        return HandReader(stream)

    async def step(self) -> None:
        """Let the tailer of each shard read what is new."""
        for shard in self.engine.store.shards():
            step = asyncio.ensure_future(Tailer(self.engine, shard, self.feed).step())
            while not step.done():
                self.clock.advance(timedelta(milliseconds=100))
                await asyncio.wait((step,), timeout=0.001)
            if not isinstance(step.exception(), Unavailable):
                step.result()


class HandReader:
    """A client of a stream. It takes a chunk when it is asked to."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.chunks: list[bytes] = []
        self._source: AsyncIterator[bytes] = stream.chunks()
        self._asked: asyncio.Future[bytes] | None = None

    async def take(self) -> bytes:
        """The next chunk."""
        async with asyncio.timeout(WITHIN):
            chunk = await (self._asked or self._ask())
        self._asked = None
        self.chunks.append(chunk)
        return chunk

    async def _ask(self) -> bytes:
        return await anext(self._source)

    async def join(self) -> "HandReader":
        """Take the opening, ask for the next chunk, and return once the stream is live."""
        await self.take()
        self._asked = asyncio.ensure_future(self._ask())
        async with asyncio.timeout(WITHIN):
            while not self.stream.is_live:
                await asyncio.wait((self._asked,), timeout=0.001)
        return self

    async def take_until(self, events: int) -> list[dict[str, Any]]:
        """Take chunks until there were so many events of jobs."""
        while len(self.events) < events:
            await self.take()
        return self.events

    def blocks(self, name: str) -> list[dict[str, Any]]:
        """The data of all blocks of this name so far."""
        blocks = b"".join(self.chunks).decode().split("\n\n")
        return [_data(block) for block in blocks if block.startswith(f"event: {name}\n")]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of jobs so far."""
        blocks = b"".join(self.chunks).decode().split("\n\n")
        return [_data(block) for block in blocks if block.startswith("data: ")]

    @property
    def last_id(self) -> str:
        found = [line[4:] for line in b"".join(self.chunks).decode().split("\n") if line.startswith("id: ")]
        return found[-1]


def _data(block: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(block.partition("data: ")[2])
    return found
