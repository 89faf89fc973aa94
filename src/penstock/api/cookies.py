"""The cookie of a browser that is signed in, and which requests with it are our page's own.

A browser adds the cookie by itself, so the cookie alone proves nothing about the page that asked. `SameSite` keeps it
from pages of other sites; a page of another host of the same site is told from ours by what the browser says of it, and
changes nothing without a token that only our page can read.
"""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import Scope

from penstock.api.origins import is_same_origin
from penstock.model.errors import CrossOrigin
from penstock.model.keys import parse_token

SECURE_NAME = "__Host-penstock"
PLAIN_NAME = "penstock"
TOKEN_HEADER = "Penstock-Token"  # noqa: S105 - the name of a header
_TOKEN = TOKEN_HEADER.lower().encode()
_SAFE_METHODS = ("GET", "HEAD")

RawHeaders = Iterable[tuple[bytes, bytes]]


def read_session(headers: RawHeaders) -> str | None:
    """The key in the cookie; None if there is none, or nothing like one. The cookie that TLS protects counts first."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, text = pair.strip().partition("=")
                found.setdefault(key, text)
    shown = found.get(SECURE_NAME) or found.get(PLAIN_NAME)
    return shown if shown is not None and parse_token(shown) is not None else None


def check_session(scope: Scope, session: str) -> None:
    """Raise CrossOrigin unless the request is one of our own page."""
    changes = scope["method"] not in _SAFE_METHODS
    if not is_same_origin(scope["headers"], must_say=changes):
        raise CrossOrigin("a web page of another origin may not use the session of a browser that is signed in here")
    if changes:
        _check_token(scope["headers"], session)


def _check_token(headers: RawHeaders, session: str) -> None:
    shown = next((value for name, value in headers if name == _TOKEN), b"")
    if not hmac.compare_digest(shown, session_token(session).encode()):
        raise CrossOrigin(f"a session changes things only with the header {TOKEN_HEADER}: `GET /v1/session` tells it")


def session_token(session: str) -> str:
    """What our page adds to requests that change something; no other page can read it, or the cookie."""
    return hashlib.sha256(f"penstock-token {session}".encode("ascii")).hexdigest()[:32]


def session_cookie(session: str | None, seconds: int, *, secure: bool) -> bytes:
    """The header that gives a browser its session, or takes it away. No script sees it."""
    name, flags = (SECURE_NAME, "; Secure") if secure else (PLAIN_NAME, "")
    age = seconds if session is not None else 0
    return f"{name}={session or ''}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{flags}".encode("ascii")
