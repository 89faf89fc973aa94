"""Answers in one piece: uvicorn writes an answer's head and its body apart, and each write would be a packet."""

import asyncio
from typing import Any

HELD_BYTES = 64 * 1024
"""More than this is not held back: the transport must see it to slow the writer down."""


class Corked:
    """A transport that gathers what is written in one turn of the event loop, and writes it at the turn's end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self._call_soon = asyncio.get_running_loop().call_soon
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._call_soon(self._uncork)
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD_BYTES:
            self._uncork()

    def close(self) -> None:
        self._uncork()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)

    def _uncork(self) -> None:
        held, self._held, self._size = self._held, [], 0
        # The client may have gone since it was written.
        if held and not self.is_closing():
            self._transport.write(b"".join(held))
