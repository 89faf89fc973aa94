"""Whether a server may listen where its settings say: beyond this machine only with API keys."""

import shlex

from penstock.config import ServerSettings
from penstock.engine.keys import Keys
from penstock.model.errors import InvalidSetting

FIRST_KEY = "penstock keys create --name ops --scope admin --direct"


async def refuse_unguarded(server: ServerSettings, keys: Keys, setting: str = "server.host") -> None:
    """Raise InvalidSetting if requests need API keys and nobody could pass as admin. To be asked before binding.

    `setting` is the one that gave the address.
    """
    if server.needs_keys and not await keys.has_admin():
        raise InvalidSetting(
            f"{_why(server, setting)}, and there is no admin key that is good; make one with: {_first_key(server)}"
        )


def _why(server: ServerSettings, setting: str) -> str:
    if server.keys == "required":
        return "server.keys: every request needs an API key"
    return f"{setting}: {server.host!r} is not a loopback address, so every request needs an API key"


def _first_key(server: ServerSettings) -> str:
    """The command to run, so that it can be pasted: a data folder given by a flag must be given again."""
    return FIRST_KEY if server.data == ServerSettings().data else f"{FIRST_KEY} --data {shlex.quote(server.data)}"
