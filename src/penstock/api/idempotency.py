"""The `Idempotency-Key` header: the key of a job, or of a whole batch."""

from typing import cast

import msgspec
from msgspec.structs import replace

from penstock.api.exchange import ApiRequest, Headers
from penstock.api.operation import Header
from penstock.model.errors import Invalid
from penstock.model.sdk_keys import REPEATED_HEADER, SHARDS_HEADER, write_shards
from penstock.model.wire import Key, SubmitRequest

IDEMPOTENCY_KEY = Header("Idempotency-Key", Key, "Repeating the request with the same key gives the same job back.")
_REPEATED = REPEATED_HEADER.lower().encode()
REPEATED = Header(
    REPEATED_HEADER,
    bool,
    "`true` with a key that the SDK made: an earlier request under it may have been carried out.",
)
BATCH_KEY = Header(
    "Idempotency-Key",
    Key,
    "Repeating the request with the same key and the same jobs gives the same jobs back; those with keys of their own "
    "are found by these.",
)


def header_key(call: ApiRequest, header: Header) -> str | None:
    """The header's key; Invalid when it is empty, too long or not printable ASCII."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    try:
        return cast(str, msgspec.convert(given, header.kind))
    except msgspec.ValidationError as error:
        raise Invalid(f"header Idempotency-Key: {error}") from None


def is_repeated(call: ApiRequest) -> bool:
    """Whether an earlier request under the same key may have been carried out; Invalid if the header is no boolean."""
    given = call.header(_REPEATED)
    if given not in (None, "true", "false"):
        raise Invalid(f"header {REPEATED_HEADER}: send `true`, `false` or no such header")
    return given == "true"


def shards_header(call: ApiRequest, key: str | None) -> Headers:
    """For a key of the SDK: the shards that its next ones may name."""
    shards = call.engine.sdk_placement.shards(key)
    return () if shards is None else ((SHARDS_HEADER.lower().encode(), write_shards(shards).encode()),)


def keyed(request: SubmitRequest, key: str | None) -> SubmitRequest:
    """The request under the header's key; Invalid when its body names another one."""
    if key is None or request.idempotency_key == key:
        return request
    if request.idempotency_key is not None:
        raise Invalid("idempotency_key: the header Idempotency-Key and the body name different keys; send one of them")
    return replace(request, idempotency_key=key)
