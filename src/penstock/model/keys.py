"""API keys: what a key may do, how it is written and verified. Only a digest of its secret is ever stored."""

import hashlib
import hmac
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NewType

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.errors import Invalid
from penstock.model.names import Name, whole
from penstock.model.signatures import SECRET_PREFIX

KeyId = NewType("KeyId", str)
RandomBytes = Callable[[int], bytes]

PREFIX = "pk"
ID_BYTES = 5
SECRET_BYTES = 32
_TOKEN = re.compile(rf"{PREFIX}_([a-z2-7]{{8}})_([A-Za-z0-9_-]{{43}})")
_SIGNING_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9+/]{{16,}}=*")
_NOBODY = "0" * 64

KeyIdText = Annotated[str, whole("[a-z2-7]{8}", max_length=8)]


class KeyScope(StrEnum):
    """What a key may do. A scope allows its own operations and no others; `admin` allows all."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    JOBS_CANCEL = "jobs:cancel"
    SCHEDULES = "schedules"
    QUEUES = "queues"
    SUBSCRIPTIONS = "subscriptions"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    ADMIN = "admin"


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key as it is stored. `queues` limit the worker's moves to jobs of these queues; None is no limit.

    `parent` is the key that a browser signed in with: this one, its session, is good only as long as that one is.
    """

    id: KeyIdText
    name: Name
    digest: str
    scopes: tuple[KeyScope, ...]
    queues: tuple[Name, ...] | None = None
    created_at: Instant
    expires_at: Instant | None = None
    parent: KeyIdText | None = None

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def allows(self, scopes: Collection[KeyScope]) -> bool:
        """Whether it has one of the scopes."""
        return any([scope is KeyScope.ADMIN or scope in scopes for scope in self.scopes])

    def foreign(self, queues: Iterable[str]) -> list[str]:
        """Those of the queues that it is not for, by name."""
        return [] if self.queues is None else sorted(set(queues) - set(self.queues))


def new_id(random_bytes: RandomBytes) -> KeyId:
    """The public part of a key: short, for lists and logs."""
    return KeyId(b32encode(random_bytes(ID_BYTES)).decode().lower())


def new_secret(random_bytes: RandomBytes) -> str:
    """The secret part: 256 random bits."""
    return urlsafe_b64encode(random_bytes(SECRET_BYTES)).decode().rstrip("=")


def token_of(id: KeyId, secret: str) -> str:
    """The key as its owner gets it, once."""
    return f"{PREFIX}_{id}_{secret}"


def digest_of(secret: str) -> str:
    """What is stored of a secret. A slow hash would add nothing: 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def parse_token(text: str) -> tuple[KeyId, str] | None:
    """The id and the secret of a key; None if it is not written like one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (KeyId(found[1]), found[2])


def proves(secret: str, key: ApiKey | None) -> bool:
    """Whether the secret is the key's own. Takes as long where there is no such key."""
    kept = _NOBODY if key is None else key.digest
    return hmac.compare_digest(digest_of(secret), kept) and key is not None


def check_terms(scopes: Collection[KeyScope], queues: Collection[str] | None) -> None:
    """Raise Invalid for terms that contradict each other."""
    if not scopes:
        raise Invalid(f"scopes: a key needs at least one of {', '.join(KeyScope)}")
    if queues is None:
        return
    if KeyScope.WORKER not in scopes or KeyScope.ADMIN in scopes:
        raise Invalid("queues: they limit worker keys; give the scope worker, without admin, or leave the queues out")
    if not queues:
        raise Invalid("queues: name at least one, or leave them out for a key of all queues")


def authorization(key: str) -> dict[str, str]:
    """The header with the key; none without a key. Invalid, without repeating it, if it is not a key."""
    if not key:
        return {}
    if parse_token(key) is None:
        raise Invalid(
            f"the API key (PENSTOCK_KEY) is not one: expected {PREFIX}_…, as `penstock keys create` printed it"
        )
    return {"authorization": f"Bearer {key}"}


def redacted(text: str) -> str:
    """The text with the secret of any key, and any secret of a webhook, left out."""
    if f"{PREFIX}_" in text:
        text = _TOKEN.sub(rf"{PREFIX}_\1_…", text)
    return _SIGNING_SECRET.sub(f"{SECRET_PREFIX}…", text) if SECRET_PREFIX in text else text
