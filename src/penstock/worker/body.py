"""A file as the body of a request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

CHUNK_BYTES = 256 * 1024


class FileBody:
    """A file's bytes, once, and how many there are."""

    def __init__(self, path: Path) -> None:
        self.size = path.stat().st_size
        self._chunks = _chunks(path)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
