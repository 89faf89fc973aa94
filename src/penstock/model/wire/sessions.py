"""The bodies of requests and answers about the sessions of browsers."""

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.keys import KeyIdText, KeyScope
from penstock.model.wire.keys import Scopes


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which scopes of the key the session is to have; all of them unless told otherwise."""

    scopes: Scopes | None = None


class SessionItem(Struct, frozen=True, kw_only=True):
    """What the one that asks may do here: with these scopes, on a server of this version.

    `needs_key`: this server needs API keys. `key`, `name` and `expires_at` are those of the key that was shown; null
    where none was shown and none is needed. A browser that is signed in sends `token` as the header `Penstock-Token`
    with everything but GET.
    """

    scopes: tuple[KeyScope, ...]
    needs_key: bool
    version: str
    key: KeyIdText | None = None
    name: str | None = None
    expires_at: Instant | None = None
    token: str | None = None
