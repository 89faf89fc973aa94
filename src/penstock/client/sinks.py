"""Sinks for the body of an answer: memory, or a file that appears only when it is complete and verified."""

import hashlib
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.model.errors import CorruptObject
from penstock.model.wire.jobs import FileItem


class Sink(Protocol):
    """Takes chunks in order. Either `finish` or `abandon` ends it."""

    def write(self, chunk: bytes) -> None: ...

    def finish(self) -> bytes:
        """What was kept in memory; CorruptObject if the whole is not what it should be."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


class BytesSink:
    """Keeps the body in memory, and compares it with `file` if one is given."""

    def __init__(self, file: FileItem | None = None) -> None:
        self._file = file
        self._body = bytearray()

    def write(self, chunk: bytes) -> None:
        self._body += chunk

    def finish(self) -> bytes:
        body = bytes(self._body)
        if self._file is not None:
            _compare(self._file, len(body), hashlib.sha256(body).hexdigest())
        return body

    def abandon(self) -> None:
        self._body.clear()


class FileSink:
    """Writes beside `path` and renames at the end: `path` is replaced by the whole file or stays as it was."""

    def __init__(self, file: FileItem, path: Path) -> None:
        self._file = file
        self._path = path
        self._part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        self._handle = self._part.open("wb")
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        self._handle.write(chunk)
        self._digest.update(chunk)
        self._size += len(chunk)

    def finish(self) -> bytes:
        self._handle.close()
        _compare(self._file, self._size, self._digest.hexdigest())
        self._part.replace(self._path)
        return b""

    def abandon(self) -> None:
        self._handle.close()
        with suppress(FileNotFoundError):
            self._part.unlink()


def _compare(file: FileItem, size: int, digest: str) -> None:
    if (size, digest) != (file.size, file.digest):
        raise CorruptObject(
            f"output {file.name!r} arrived damaged: {size} bytes with digest {digest[:12]}…, "
            f"expected {file.size} with {file.digest[:12]}…; download it again"
        )
