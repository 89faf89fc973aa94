"""Whether a server may listen where its settings say: beyond this machine only with API keys."""

import logging
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.config import ServerSettings
from penstock.engine.keys import Keys
from penstock.model.errors import InvalidSetting

FIRST_KEY = "penstock keys create --name ops --scope admin --direct"


async def refuse_unguarded(server: ServerSettings, keys: Keys, setting: str = "server.host") -> None:
    """Raise InvalidSetting if requests need API keys and no admin key exists. Call before binding.

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
    """The command to paste: a data folder given by a flag must be repeated."""
    return FIRST_KEY if server.data == ServerSettings().data else f"{FIRST_KEY} --data {shlex.quote(server.data)}"


logger = logging.getLogger("penstock.server")

FILE = "local_workers.key"


@contextmanager
def keep_token(folder: Path, lend: Callable[[str | None], str]) -> Iterator[str]:
    """A key for the workers of this server: that of its last run, if that was killed.

    Workers outlive a killed server until their jobs have ended: the next server must accept their key, to renew leases
    and record results. After the body they have ended, and the key is removed. Only the owner of the folder can read
    it, and that user can read all jobs too.
    """
    path = folder / FILE
    token = lend(_read(path))
    try:
        _write(path, token)
    except OSError as error:
        logger.warning("%s cannot be written (%s): workers that outlive this server will be lost", path, error.strerror)
    try:
        yield token
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text("ascii").strip()
    return None


def _write(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, token.encode("ascii"))
    finally:
        os.close(file)
