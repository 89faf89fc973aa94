"""A request body held until its size and digest are known: in memory while it is small, else in a file."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Self

from penstock.model.errors import ObjectsUnavailable

MEMORY_BYTES = 8 << 20
BLOCK_BYTES = 1 << 20


class Spool:
    """Takes one body, and removes it when closed. ObjectsUnavailable when the temporary folder is full."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._held = bytearray()
        self._file: IO[bytes] | None = None

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def content(self) -> bytes | Path:
        """The bytes, or the path of the file that holds them."""
        return bytes(self._held) if self._file is None else Path(self._file.name)

    async def take(self, body: AsyncIterator[bytes]) -> None:
        async for chunk in body:
            self.size += len(chunk)
            self._held += chunk
            if len(self._held) >= (MEMORY_BYTES if self._file is None else BLOCK_BYTES):
                await self._move_to_file()
        if self._file is not None:
            await self._move_to_file()
        else:
            self._hash.update(self._held)

    async def _move_to_file(self) -> None:
        held, self._held = self._held, bytearray()
        try:
            await asyncio.to_thread(self._write, held)
        except OSError as error:
            raise ObjectsUnavailable(f"a file cannot be held on its way to the bucket: {error}") from error

    def _write(self, block: bytearray) -> None:
        if self._file is None:
            self._file = NamedTemporaryFile(prefix="penstock-")  # noqa: SIM115 - closed with the spool
        self._hash.update(block)
        self._file.write(block)
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
