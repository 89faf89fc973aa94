"""The server that commands talk to, and the shape of the commands that do."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from penstock.cli import options, style
from penstock.cli.format import Printer
from penstock.model.clock import seconds, within
from penstock.model.errors import ServerUnavailable
from penstock.model.keys import authorization

if TYPE_CHECKING:
    from penstock.client import Client


R = TypeVar("R")
T = TypeVar("T")


@contextmanager
def connect(url: str | None, config: Path | None) -> "Iterator[Client]":
    """Open a client of the server that flag, environment or file names. An absent server is an error at once."""
    from penstock.client import Client

    worker = options.settings(config, {"worker.url": url}).worker
    with Client(worker.url, key=worker.key, patience=0) as client:
        yield client


class RemoteServer(Printer):
    """The server that a command asks, and how its answers are printed."""

    def __init__(self, url: str | None, config: Path | None, *, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self._url = url
        self._config = config

    def connect(self) -> "AbstractContextManager[Client]":
        """Open a client, for a command that asks more than once."""
        return connect(self._url, self._config)

    def ask(self, call: "Callable[[Client], T]") -> T:
        """Ask once and give the answer."""
        with self.connect() as client:
            return call(client)

    def for_each(self, names: Sequence[str], call: "Callable[[Client, str], T]", text: Callable[[T], str]) -> None:
        """Call for each name in order, and print each answer before the next call: as JSON, or as a line of text."""
        with self.connect() as client:
            for name in names:
                answer = call(client, name)
                self.say(answer, text(answer))

    def show_each(
        self, names: Sequence[str], call: "Callable[[Client, str], T]", show: "Callable[[Client, T], object]"
    ) -> None:
        """Call for each name in order, and print each answer whole, with blank lines between."""
        with self.connect() as client:
            for number, name in enumerate(names):
                answer = call(client, name)
                if number and not self.as_json:
                    style.say()
                self.show(answer, partial(show, client, answer))


def remote(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command --url, --config and --json, which it takes as one argument, `server`."""

    @wraps(function)
    def run(*, url: str | None, config: Path | None, as_json: bool, **given: object) -> R:
        return function(server=RemoteServer(url, config, as_json=as_json), **given)

    return options.remote(run)


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
