"""Signatures of webhooks, as Standard Webhooks defines them: HMAC-SHA256 over id, timestamp and the exact body."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from penstock.model.errors import Invalid

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
SECRET_BYTES: Final = 32
FEWEST_SECRET_BYTES, MOST_SECRET_BYTES = 24, 64
VERSION: Final = "v1"

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"


def new_signing_secret(random_bytes: Callable[[int], bytes]) -> str:
    """A fresh secret, as sender and receiver keep it."""
    return SECRET_PREFIX + b64encode(random_bytes(SECRET_BYTES)).decode()


def signing_key(secret: str) -> bytes:
    """The key within a secret; Invalid, without repeating it, if it is not one."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not FEWEST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES:
        expected = f"{SECRET_PREFIX} and the base64 of {FEWEST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes"
        raise Invalid(f"secret: what was given is not a signing secret; expected {expected}")
    return key


def timestamp_of(at: datetime) -> str:
    """An instant as the timestamp header holds it: whole seconds."""
    return str(int(at.timestamp()))


def signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(key, f"{id}.{timestamp}.".encode(errors="replace") + body, hashlib.sha256).digest()
    return f"{VERSION},{b64encode(digest).decode()}"


def sign(secrets: Iterable[str], id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a message, signed with every secret at once: each receiver finds the signature of its own."""
    timestamp = timestamp_of(at)
    signatures = [signature(signing_key(secret), id, timestamp, body) for secret in secrets]
    return {ID_HEADER: id, TIMESTAMP_HEADER: timestamp, SIGNATURE_HEADER: " ".join(signatures)}


def is_signed(keys: Iterable[bytes], id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Whether one of the signatures is by one of the keys.

    Compares each pair, so that the time taken tells nothing of which one fits.
    """
    given = [one.encode(errors="replace") for one in signatures.split(" ")]
    expected = [signature(key, id, timestamp, body).encode() for key in keys]
    return any([hmac.compare_digest(one, other) for one in given for other in expected])
