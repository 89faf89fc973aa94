"""What the clients ask of a server about job types, API keys and shards: one function per endpoint, each a `Call`."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from penstock.client.calls import Call, path_of, query_of
from penstock.client.options import Duration, seconds_of
from penstock.model.errors import Invalid
from penstock.model.shards import ShardState
from penstock.model.wire.keys import KeyItem, KeyList, KeyRequest, MadeKey, RevokedKey, RotateRequest
from penstock.model.wire.shards import ShardItem, ShardList, ShardRequest
from penstock.model.wire.types import AliasRequest, RetiredType, RetireRequest, TypeItem, TypeList

_MADE = msgspec.json.Decoder(MadeKey).decode
_REVOKED = msgspec.json.Decoder(RevokedKey).decode
StateName: TypeAlias = ShardState | Literal["active", "draining", "down"]
_SHARD = msgspec.json.Decoder(ShardItem).decode


def types() -> Call[tuple[TypeItem, ...]]:
    return Call("GET", "/v1/types", lambda raw: msgspec.json.decode(raw, type=TypeList).types)


def alias_type(name: str, run_as: str) -> Call[TypeItem]:
    body = msgspec.json.encode(AliasRequest(run_as))
    return Call("PUT", path_of("types", name, "alias"), msgspec.json.Decoder(TypeItem).decode, body=body)


def remove_type_alias(name: str) -> Call[None]:
    """Not repeatable: a second one would find nothing to remove."""
    return Call("DELETE", path_of("types", name, "alias"), lambda _: None, repeatable=False)


def retire_type(name: str, *, cancel: bool) -> Call[RetiredType]:
    body = msgspec.json.encode(RetireRequest(cancel))
    return Call("POST", path_of("types", name, "retire"), msgspec.json.Decoder(RetiredType).decode, body=body)


def keys() -> Call[tuple[KeyItem, ...]]:
    return Call("GET", "/v1/keys", lambda raw: msgspec.json.decode(raw, type=KeyList).keys)


def create_key(request: KeyRequest) -> Call[MadeKey]:
    """Not repeatable: each one makes a key."""
    return Call("POST", "/v1/keys", _MADE, body=msgspec.json.encode(request), repeatable=False)


def rotate_key(id: str, request: RotateRequest) -> Call[MadeKey]:
    """Not repeatable: each one makes a key."""
    return Call("POST", path_of("keys", id, "rotate"), _MADE, body=msgspec.json.encode(request), repeatable=False)


def revoke_key(id: str) -> Call[tuple[int, ...]]:
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


def shards() -> Call[tuple[ShardItem, ...]]:
    return Call("GET", "/v1/shards", lambda raw: msgspec.json.decode(raw, type=ShardList).shards)


def add_shard(request: ShardRequest) -> Call[ShardItem]:
    """Not repeatable: the second one would find the shard there already."""
    return Call("POST", "/v1/shards", _SHARD, body=msgspec.json.encode(request), repeatable=False)


def change_shard(number: int, weight: float | None, state: StateName | None, *, keyed: bool | None) -> Call[ShardItem]:
    said = {"weight": weight, "state": state, "keyed": keyed}
    body = {name: value for name, value in said.items() if value is not None}
    return Call("PATCH", path_of("shards", str(number)), _SHARD, body=msgspec.json.encode(body))


def remove_shard(number: int, *, force: bool) -> Call[None]:
    """Not repeatable: the second one would find nothing to remove."""
    query = query_of(force="true" if force else None)
    return Call("DELETE", path_of("shards", str(number)), lambda _: None, query=query, repeatable=False)
