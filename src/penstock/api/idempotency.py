"""The `Idempotency-Key` header: one key for a job, or the root of one for each job of a batch."""

from typing import Annotated, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from penstock.api.exchange import Call
from penstock.api.operation import Header
from penstock.model.errors import Invalid
from penstock.model.wire import Key, SubmitRequest

RootKey = Annotated[str, Meta(min_length=1, max_length=240, pattern=r"^[\x21-\x7e]+$")]
"""A key with room for the number of each job behind it."""

IDEMPOTENCY_KEY = Header("Idempotency-Key", Key, "Repeating the request with the same key gives the same job back.")
BATCH_KEY = Header("Idempotency-Key", RootKey, "Job n without a key of its own gets `<key>/n`.")


def header_key(call: Call, header: Header) -> str | None:
    """The header's key; Invalid when it is empty, too long or not printable ASCII."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    try:
        return cast(str, msgspec.convert(given, header.kind))
    except msgspec.ValidationError as fault:
        raise Invalid(f"header Idempotency-Key: {fault}") from None


def keyed(request: SubmitRequest, key: str | None) -> SubmitRequest:
    """The request under the header's key; Invalid when its body names another one."""
    if key is None or request.idempotency_key == key:
        return request
    if request.idempotency_key is not None:
        raise Invalid("idempotency_key: the header Idempotency-Key and the body name different keys; send one of them")
    return replace(request, idempotency_key=key)
