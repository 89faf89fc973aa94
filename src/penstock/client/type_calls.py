"""What the clients ask of a server about job types: one function per endpoint, each giving a `Call`."""

import msgspec

from penstock.client.calls import Call, path_of
from penstock.model.wire.types import AliasRequest, RetiredType, RetireRequest, TypeItem, TypeList


def types() -> Call[tuple[TypeItem, ...]]:
    return Call("GET", "/v1/types", lambda raw: msgspec.json.decode(raw, type=TypeList).types)


def alias(name: str, run_as: str) -> Call[TypeItem]:
    body = msgspec.json.encode(AliasRequest(run_as))
    return Call("PUT", path_of("types", name, "alias"), msgspec.json.Decoder(TypeItem).decode, body=body)


def remove_alias(name: str) -> Call[None]:
    """Not repeatable: a second one would find nothing to remove."""
    return Call("DELETE", path_of("types", name, "alias"), lambda _: None, repeatable=False)


def retire(name: str, *, cancel: bool) -> Call[RetiredType]:
    body = msgspec.json.encode(RetireRequest(cancel))
    return Call("POST", path_of("types", name, "retire"), msgspec.json.Decoder(RetiredType).decode, body=body)
