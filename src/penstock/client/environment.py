"""What a client is not told by its user: the server's URL, the API key and the patience of its process."""

import math
import os
from datetime import timedelta

from penstock.model.errors import Invalid

URL_VARIABLE = "PENSTOCK_URL"
KEY_VARIABLE = "PENSTOCK_KEY"
PATIENCE_VARIABLE = "PENSTOCK_PATIENCE"
DEFAULT_URL = "http://127.0.0.1:7373"

SHORT = timedelta(seconds=5)
"""What a web request bears: longer than the restart of a server, and over before a proxy or a person gives up."""
LONG = timedelta(seconds=30)
"""In a handler: only its own job waits for it."""

_worker_server: tuple[str, str] | None = None
"""URL and key of the worker that this executor belongs to."""


def belong_to(url: str, key: str) -> None:
    """From now on clients without a URL call this server, and clients without a key send it this one."""
    global _worker_server
    os.environ[URL_VARIABLE] = url
    _worker_server = url.rstrip("/"), key


def in_executor() -> bool:
    """Whether this process runs handlers."""
    return _worker_server is not None


def worker_key(url: str) -> str:
    """The key of this executor's worker if `url` is its server; empty for any other URL and in other processes."""
    return _worker_server[1] if _worker_server is not None and url.rstrip("/") == _worker_server[0] else ""


def server_url(url: str | None) -> str:
    """The argument, else PENSTOCK_URL, else this machine's default port."""
    chosen = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    if not chosen.startswith(("http://", "https://")):
        raise Invalid(f"{chosen!r} is not the URL of a Penstock server: expected something like {DEFAULT_URL}")
    return chosen.rstrip("/")


def server_key(key: str | None) -> str:
    """The argument, else PENSTOCK_KEY, else none."""
    return os.environ.get(KEY_VARIABLE, "") if key is None else key


def default_patience() -> timedelta:
    """PENSTOCK_PATIENCE, in seconds; else LONG in a handler and SHORT elsewhere."""
    told = os.environ.get(PATIENCE_VARIABLE, "")
    if not told:
        return LONG if in_executor() else SHORT
    try:
        given = float(told)
    except ValueError:
        given = math.nan
    if not 0 <= given <= timedelta.max.total_seconds():
        raise Invalid(f"{PATIENCE_VARIABLE}: expected a number of seconds, such as 5, not {told!r}")
    return timedelta(seconds=given)
