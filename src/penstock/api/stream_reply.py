"""Answers that go on: server-sent events, sent as they come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar, Protocol

from msgspec import Struct
from starlette.types import Send

from penstock.api.operation import Header
from penstock.api.request import AnswerBroken, ApiRequest, ClientGone, Headers
from penstock.model.errors import RequestTimeout
from penstock.model.request_ids import HEADER

EVENT_STREAM = "text/event-stream"

HEADERS: Headers = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    # nginx would gather the stream before it passes it on.
    (b"x-accel-buffering", b"no"),
)


ACCEPT = Header("Accept", str, f"`{EVENT_STREAM}` gives a stream.")


def wants_stream(call: ApiRequest) -> bool:
    """Whether the client accepts a stream; a browser's EventSource always says so."""
    return EVENT_STREAM in (call.header(b"accept") or "").lower()


class ChunkStream(Protocol):
    """What is sent, as it comes. Once `aborted` is done, its client is given up."""

    aborted: "asyncio.Future[None]"

    def chunks(self) -> AsyncIterator[bytes]: ...


class StreamReply(Struct, frozen=True):
    """A stream as an answer. It ends with the stream, when its client hangs up, or when its client takes nothing."""

    is_timed: ClassVar[bool] = False
    status: ClassVar[int] = 200
    call: ApiRequest
    stream: ChunkStream
    close: Callable[[], Awaitable[None]]

    async def send(self, send: Send, request: bytes, *, headers_only: bool = False) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [(HEADER, request), *HEADERS]})
            if not headers_only:
                await self._send_chunks(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self.close()

    async def _send_chunks(self, send: Send) -> None:
        sending = asyncio.ensure_future(self._pump(send))
        ended = asyncio.ensure_future(asyncio.wait((sending, self.stream.aborted), return_when=asyncio.FIRST_COMPLETED))
        try:
            if not await self.call.stays_for(ended):
                raise ClientGone
            if not sending.done():
                raise AnswerBroken(self.status) from RequestTimeout("the client took nothing of a stream in time")
            sending.result()
        finally:
            ended.cancel()
            sending.cancel()
            await asyncio.gather(sending, ended, return_exceptions=True)

    async def _pump(self, send: Send) -> None:
        async for chunk in self.stream.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
