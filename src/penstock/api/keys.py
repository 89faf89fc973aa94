"""The `Idempotency-Key` header: one key for a job, or the root of one for each job of a batch."""

import msgspec
from msgspec.structs import replace

from penstock.api.exchange import Call
from penstock.api.operation import Header
from penstock.model.errors import Invalid
from penstock.model.wire import Key, SubmitRequest

IDEMPOTENCY_KEY = Header("Idempotency-Key", Key, "Repeating a request with the same key gives the same job back.")


def header_key(call: Call) -> str | None:
    """The header's key; Invalid when it is empty, too long or not printable ASCII."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    try:
        return msgspec.convert(given, Key)
    except msgspec.ValidationError as fault:
        raise Invalid(f"header Idempotency-Key: {fault}") from None


def keyed(request: SubmitRequest, key: str | None) -> SubmitRequest:
    """The request under the header's key; Invalid when its body names another one."""
    if key is None or request.idempotency_key == key:
        return request
    if request.idempotency_key is not None:
        raise Invalid("idempotency_key: the header Idempotency-Key and the body name different keys; send one of them")
    return replace(request, idempotency_key=key)
