"""In an executor: the server that its jobs come from, which the SDK talks to unless it is told otherwise.

The key is kept in memory and not in the environment: what handlers start does not inherit it.
"""

import os

URL_VARIABLE = "PENSTOCK_URL"

_home: tuple[str, str] | None = None


def belong_to(url: str, key: str) -> None:
    """From now on clients without an address talk to this server, and those without a key show it this one."""
    global _home
    os.environ[URL_VARIABLE] = url
    _home = url.rstrip("/"), key


def in_executor() -> bool:
    """Whether this process runs handlers."""
    return _home is not None


def home_key(url: str) -> str:
    """The key to show at an address where no other was given: this executor's, at its own server and nowhere else."""
    return _home[1] if _home is not None and url.rstrip("/") == _home[0] else ""
