"""The server that commands talk to."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.cli.options import settings
from penstock.model.clock import seconds, within
from penstock.model.errors import ServerUnavailable
from penstock.model.keys import authorization

if TYPE_CHECKING:
    from penstock.client import Client


@contextmanager
def connected(url: str | None, config: Path | None) -> "Iterator[Client]":
    """A client of the server that flag, environment or file names. An absent server is told at once, not retried."""
    from penstock.client import Client

    worker = settings(config, {"worker.url": url}).worker
    with Client(worker.url, key=worker.key, patience=0) as client:
        yield client


PATIENCE = seconds(3)


async def fetch(url: str, path: str, key: str = "") -> tuple[int, bytes]:
    """Status and body of `GET path` at the server, which is shown the API key if there is one.

    Raises ServerUnavailable when it does not answer in time.
    """
    try:
        answer = await within(PATIENCE, _exchange(url, path, key))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ServerUnavailable(f"no answer from {url}: {why}") from error
    if not answer:
        raise ServerUnavailable(f"no answer from {url} within {PATIENCE.total_seconds():g} s")
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        return int(head.split(b" ", 2)[1]), body
    except (IndexError, ValueError):
        raise ServerUnavailable(f"what answers at {url} does not speak HTTP") from None


async def _exchange(url: str, path: str, key: str) -> bytes:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        # 1.0: the body ends with the connection, so there is nothing to decode.
        headers = {"Host": parts.netloc, **authorization(key)}
        lines = [f"GET {path} HTTP/1.0", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        return await reader.read()
    finally:
        writer.close()
