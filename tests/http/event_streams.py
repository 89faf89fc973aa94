"""Streams of events, read by hand from the ASGI application: httpx2's transport would wait for their end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec
from starlette.types import ASGIApp, Message

from tests.http.api_calls import Json

WITHIN = 20.0


class Block(msgspec.Struct, frozen=True):
    """One block of a stream: an event with data, or only an id."""

    event: str
    data: str
    id: str | None

    @property
    def json(self) -> Json:
        found: Json = msgspec.json.decode(self.data)
        return found


def parse_block(text: str) -> Block:
    event, data, id = "message", "", None
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        match name:
            case "event":
                event = value
            case "data":
                data += value
            case "id":
                id = value
            case _:
                pass
    return Block(event, data, id)


class RunningStream:
    """A request for a stream. While `reads` is not set, the client takes nothing."""

    def __init__(self, app: ASGIApp, path: str, query: Json, headers: dict[str, str]) -> None:
        self._app = app
        self._hung_up = asyncio.Event()
        self._asked = False
        self._blocks: asyncio.Queue[Block | None] = asyncio.Queue()
        self._unparsed = ""
        self.reads = asyncio.Event()
        self.reads.set()
        self.started = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.last_id = ""
        named = {"host": "localhost", "accept": "text/event-stream", **headers}
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": urlencode(query).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }

    async def run(self) -> None:
        await self._app(self._scope, self._receive, self._send)
        self._blocks.put_nowait(None)

    async def block(self) -> Block | None:
        """The next block with data; None at the end of the stream."""
        async with asyncio.timeout(WITHIN):
            while True:
                found = await self._blocks.get()
                if found is not None and found.id is not None:
                    self.last_id = found.id
                if found is None or found.data:
                    return found

    async def id(self) -> str:
        """The next id."""
        async with asyncio.timeout(WITHIN):
            while True:
                found = await self._blocks.get()
                assert found is not None
                if found.id is not None:
                    self.last_id = found.id
                    return found.id

    async def events(self, count: int) -> list[Json]:
        """The next events of jobs."""
        found: list[Json] = []
        while len(found) < count:
            block = await self.block()
            assert block is not None, f"the stream ended after {found}"
            if block.event == "message":
                found.append(block.json)
        return found

    async def named(self, event: str) -> Json:
        """The next block of this name."""
        while True:
            block = await self.block()
            assert block is not None, f"the stream ended before {event}"
            if block.event == event:
                return block.json

    async def rest(self) -> list[Block]:
        """All blocks up to the end of the stream."""
        found = []
        while (block := await self.block()) is not None:
            found.append(block)
        return found

    def hang_up(self) -> None:
        self._hung_up.set()

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.started.set()
            return
        self.chunks.append(message["body"])
        *whole, self._unparsed = (self._unparsed + message["body"].decode()).split("\n\n")
        for text in whole:
            self._blocks.put_nowait(parse_block(text))
        await self.reads.wait()


@asynccontextmanager
async def open_stream(
    app: ASGIApp, path: str = "/v1/events", headers: dict[str, str] | None = None, **query: object
) -> AsyncIterator[RunningStream]:
    """A stream that has begun; its client hangs up at the end. Those of events begin with an id."""
    stream = RunningStream(app, path, query, headers or {})
    running = asyncio.ensure_future(stream.run())
    try:
        async with asyncio.timeout(WITHIN):
            await stream.started.wait()
            if stream.status == 200 and path.endswith("/events"):
                await stream.id()
        yield stream
    finally:
        stream.reads.set()
        stream.hang_up()
        async with asyncio.timeout(WITHIN):
            await running
