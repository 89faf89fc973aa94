"""What every object store promises. `penstock.testing.objects_contract` holds each backend to it.

Keys are made by the server: slash-separated segments of lower-case letters, digits and dashes. Names that users give
are kept in the job, never in a key.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

from penstock.model.job import ObjectLink


class ObjectStore(Protocol):
    """Immutable objects by key."""

    async def put(
        self, key: str, body: AsyncIterator[bytes], content_type: str, digest: str | None = None
    ) -> ObjectLink:
        """Store a new object, whole or not at all, durable on return; the link tells its size and SHA-256 (hex).

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
        """A second name for an object. NotFound without a source; an equal target is fine."""
        ...

    async def delete(self, prefix: str) -> int:
        """Remove the object of this key and all below it; how many."""
        ...

    def scan(self, prefix: str, older_than: timedelta) -> AsyncIterator[str]:
        """Keys below `prefix` of objects stored longer ago than that."""
        ...

    async def close(self) -> None: ...
