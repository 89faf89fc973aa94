"""The bodies of HTTP requests and answers about API keys."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.model.clock import Instant
from penstock.model.ids import ShardId
from penstock.model.keys import ApiKey, KeyIdText, KeyScope
from penstock.model.workers import Name

Lifetime = Annotated[float, Meta(gt=0, le=315_360_000)]
Grace = Annotated[float, Meta(ge=0, le=31_536_000)]
Queues = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)]
Scopes = Annotated[tuple[KeyScope, ...], Meta(min_length=1, max_length=len(KeyScope))]

GRACE_SECONDS = 86_400.0


class KeyRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key to make. Without `lifetime_seconds` it never expires; `queues` limit a worker key."""

    name: Name
    scopes: Scopes
    queues: Queues | None = None
    lifetime_seconds: Lifetime | None = None


class RotateRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long the old key stays good beside the new one, and how long the new one lives."""

    grace_seconds: Grace = GRACE_SECONDS
    lifetime_seconds: Lifetime | None = None


class KeyItem(Struct, frozen=True, kw_only=True):
    """A key as lists show it: nothing of its secret. `parent`: the key that a browser signed in with to get it."""

    id: KeyIdText
    name: str
    scopes: tuple[KeyScope, ...]
    queues: tuple[str, ...] | None = None
    created_at: Instant
    expires_at: Instant | None = None
    parent: KeyIdText | None = None


class MadeKey(KeyItem, frozen=True, kw_only=True):
    """A new key. `key` is shown here and never again."""

    key: str


class KeyList(Struct, frozen=True):
    keys: tuple[KeyItem, ...]


class RevokedKey(Struct, frozen=True):
    """A revoked key, and the shards that do not know it yet."""

    id: KeyIdText
    unreached_shards: tuple[ShardId, ...]


def key_item(key: ApiKey) -> KeyItem:
    return KeyItem(**_shown(key))


def made_key(key: ApiKey, token: str) -> MadeKey:
    return MadeKey(**_shown(key), key=token)


def _shown(key: ApiKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KeyItem.__struct_fields__}
