"""What every object store promises. `penstock.testing.objects_contract` holds each backend to it.

Keys are made by the server: slash-separated segments of lower-case letters, digits and dashes. Names that users give
are kept in the job, never in a key.
"""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

from penstock.model.errors import Invalid
from penstock.model.job import ObjectLink

KEY_MAX = 512
CONTENT_TYPE_MAX = 255

_KEY = re.compile(r"[a-z0-9-]{1,128}(?:/[a-z0-9-]{1,128})*")


class ObjectStore(Protocol):
    """Immutable objects by key."""

    async def put(
        self, key: str, body: AsyncIterator[bytes], content_type: str, digest: str | None = None
    ) -> ObjectLink:
        """Store a new object, whole or not at all, durable on return; the link has its size and SHA-256 (hex).

        Create-only: Conflict if the key exists. CorruptObject if `digest` is given and the bytes do not match it.
        """
        ...

    async def stat(self, key: str) -> ObjectLink | None:
        """The link of an object, or None if there is none."""
        ...

    def read(self, link: ObjectLink) -> AsyncIterator[bytes]:
        """The bytes, in chunks. NotFound if it is gone; CorruptObject at the end if they do not match the digest."""
        ...

    async def copy(self, source: str, target: str) -> ObjectLink:
        """Copy an object to another key. NotFound without a source; an equal target is no error."""
        ...

    async def delete(self, prefix: str) -> int:
        """Remove the object of this key and all objects below it; how many."""
        ...

    def scan(self, prefix: str, older_than: timedelta) -> AsyncIterator[str]:
        """Keys below `prefix` of objects stored longer ago than that, and of the remains of unfinished ones."""
        ...

    async def upload_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        """A URL for a PUT of this link's bytes directly to the object store; None where there is none.

        The object exists once as many bytes as the link says are stored. They have not been compared with its digest
        then: readers do that. Before, the key is free for a `put` of the same bytes. Asking again for the same link
        gives another URL; another link is a Conflict.
        """
        ...

    async def download_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        """A URL for a GET of the bytes directly from the object store; None where there is none."""
        ...

    async def close(self) -> None: ...


def check_key(key: str) -> None:
    """Raise Invalid for what is not a key."""
    if len(key) > KEY_MAX or not _KEY.fullmatch(key):
        raise Invalid(f"{key[:KEY_MAX]!r} is not an object key: join segments of a-z, 0-9 and dashes by slashes")


def check_content_type(content_type: str) -> None:
    """Raise Invalid for one that is too long to keep."""
    if len(content_type) > CONTENT_TYPE_MAX:
        raise Invalid(f"a content type has at most {CONTENT_TYPE_MAX} characters, not {len(content_type)}")
