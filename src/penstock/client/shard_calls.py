"""What the clients ask of a server about shards: one function per endpoint, each giving a `Call`."""

from typing import Literal, TypeAlias

import msgspec

from penstock.client.calls import Call, path_of, query_of
from penstock.model.shards import ShardState
from penstock.model.wire.shards import ShardItem, ShardList, ShardRequest

StateName: TypeAlias = ShardState | Literal["active", "draining", "down"]

_SHARD = msgspec.json.Decoder(ShardItem).decode


def shards() -> Call[tuple[ShardItem, ...]]:
    return Call("GET", "/v1/shards", lambda raw: msgspec.json.decode(raw, type=ShardList).shards)


def add(request: ShardRequest) -> Call[ShardItem]:
    """Not repeatable: the second one would find the shard there already."""
    return Call("POST", "/v1/shards", _SHARD, body=msgspec.json.encode(request), repeatable=False)


def change(number: int, weight: float | None, state: StateName | None, *, keyed: bool | None) -> Call[ShardItem]:
    said = {"weight": weight, "state": state, "keyed": keyed}
    body = {name: value for name, value in said.items() if value is not None}
    return Call("PATCH", path_of("shards", str(number)), _SHARD, body=msgspec.json.encode(body))


def remove(number: int, *, force: bool) -> Call[None]:
    """Not repeatable: the second one would find nothing to remove."""
    query = query_of(force="true" if force else None)
    return Call("DELETE", path_of("shards", str(number)), lambda _: None, query=query, repeatable=False)
