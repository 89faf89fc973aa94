"""Where keys are made and kept: at a server that answers, or straight in the store that one would open."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli import ink, options
from penstock.cli.fetch import fetch
from penstock.cli.loop import run
from penstock.config import Settings
from penstock.model.errors import ServerUnavailable

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.engine.keys import Keys

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

direct = click.option(
    "--direct", is_flag=True, help="Go to the store of the settings itself, whether a server answers or not."
)
data = click.option("--data", metavar="DIR", help="Data folder of a server that is down.  [default: .penstock]")


def options_of_keys(function: F) -> F:
    """The options of every command about keys."""
    return options.remote(data(direct(function)))


class KeyAccess:
    """Keys, at the server that flag, environment or file names; without one, in the store of the settings.

    So the first key can be made before there is a server that needs it. A server that was named by --url is asked, and
    no other.
    """

    def __init__(self, url: str | None, config: Path | None, data: str | None, *, direct: bool) -> None:
        self._settings = options.settings(config, {"worker.url": url, "server.data": data})
        self._over_http = not direct and (url is not None or _answers(self._settings))

    def ask(self, server: "Callable[[Client], T]", store: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        """Ask for the same in the way that is open."""
        ink.hint(f"at {self._settings.worker.url}" if self._over_http else "in the store, no server was asked")
        return self._at_server(server) if self._over_http else run(self._in_store(store))

    def _at_server(self, ask: "Callable[[Client], T]") -> T:
        from penstock.client import Client

        with Client(self._settings.worker.url, key=self._settings.worker.key, patience=0) as client:
            return ask(client)

    async def _in_store(self, ask: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        from penstock.runtime import open_engine

        async with open_engine(self._settings) as engine:
            return await ask(engine.keys)


def _answers(settings: Settings) -> bool:
    try:
        status, _ = asyncio.run(fetch(settings.worker.url, "/healthz"))
    except ServerUnavailable:
        return False
    return status == 200
