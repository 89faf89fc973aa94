"""What the clients ask of a server about API keys: one function per endpoint, each giving a `Call`."""

from collections.abc import Iterable

import msgspec

from penstock.client.calls import Call, path_of
from penstock.client.options import Duration, seconds_of
from penstock.model.errors import Invalid
from penstock.model.wire.keys import KeyItem, KeyList, KeyRequest, MadeKey, RevokedKey, RotateRequest

_MADE = msgspec.json.Decoder(MadeKey).decode
_REVOKED = msgspec.json.Decoder(RevokedKey).decode


def keys() -> Call[tuple[KeyItem, ...]]:
    return Call("GET", "/v1/keys", lambda raw: msgspec.json.decode(raw, type=KeyList).keys)


def create(request: KeyRequest) -> Call[MadeKey]:
    """Not repeatable: each one makes a key."""
    return Call("POST", "/v1/keys", _MADE, body=msgspec.json.encode(request), repeatable=False)


def rotate(id: str, request: RotateRequest) -> Call[MadeKey]:
    """Not repeatable: each one makes a key."""
    return Call("POST", path_of("keys", id, "rotate"), _MADE, body=msgspec.json.encode(request), repeatable=False)


def revoke(id: str) -> Call[tuple[int, ...]]:
    """The shards that do not know it yet; without a body, there are none."""
    return Call("DELETE", path_of("keys", id), lambda raw: _REVOKED(raw).unreached_shards if raw else ())


def key_request(
    name: str, scopes: Iterable[str], queues: Iterable[str] | None, lifetime: Duration | None
) -> KeyRequest:
    """The terms of a key to make; Invalid names what in them can never be."""
    terms = {
        "name": name,
        "scopes": tuple(scopes),
        "queues": None if queues is None else tuple(queues),
        "lifetime_seconds": seconds_of(lifetime),
    }
    try:
        return msgspec.convert(terms, KeyRequest)
    except msgspec.ValidationError as error:
        raise Invalid(f"no key can be made like this: {error}") from None


def rotate_request(grace: Duration, lifetime: Duration | None) -> RotateRequest:
    """The terms of a rotation; Invalid names what in them can never be."""
    terms = {"grace_seconds": seconds_of(grace), "lifetime_seconds": seconds_of(lifetime)}
    try:
        return msgspec.convert(terms, RotateRequest)
    except msgspec.ValidationError as error:
        raise Invalid(f"a key cannot be rotated like this: {error}") from None
