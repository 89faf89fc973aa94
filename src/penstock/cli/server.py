"""The server that commands talk to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.options import settings

if TYPE_CHECKING:
    from penstock.client import Client


@contextmanager
def connected(url: str | None, config: Path | None) -> "Iterator[Client]":
    """A client of the server that flag, environment or file names. An absent server is told at once, not retried."""
    from penstock.client import Client

    worker = settings(config, {"worker.url": url}).worker
    with Client(worker.url, key=worker.key, patience=0) as client:
        yield client
