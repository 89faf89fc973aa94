"""A bucket: the requests that objects need, each with a deadline, and their errors translated."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from penstock.model.errors import InvalidSetting, ObjectsUnavailable

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
CHUNK_BYTES = 1 << 20
BYTES_PER_DEADLINE = 64 << 20
"""How many bytes a store must be able to accept or copy within one deadline."""

_CONNECT = timedelta(seconds=5)
_RETRIES = 2
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")


class Access(Struct, frozen=True):
    """The address and the credentials of a bucket. None: from the usual AWS_* variables or the machine's role.

    `public_endpoint` is the URL of `endpoint` as clients and workers reach it; None: the same.
    """

    endpoint: str | None = None
    public_endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None


class Stored(Struct, frozen=True):
    """An item of the bucket, by its path below the prefix."""

    path: str
    modified_at: datetime


class Taken(Exception):
    """The path exists already, and was not written."""


class Bucket:
    """Paths below the prefix of an `s3://bucket/prefix`. FileNotFoundError for a path that is not there;
    ObjectsUnavailable when there is no good answer within the deadline."""

    def __init__(self, url: str, access: Access, deadline: timedelta) -> None:
        self._name, prefix = _parted(url)
        self._url = url
        self._deadline = deadline.total_seconds()
        self._store = _store(self._name, prefix, access, access.endpoint, deadline)
        public = access.public_endpoint or access.endpoint
        self._signing = _store(self._name, prefix, access, public, deadline)

    async def create(self, path: str, content: bytes) -> None:
        """Write a path that must not exist; Taken if it does."""
        async with self._guard():
            await self._store.put_async(path, content, mode="create", use_multipart=False)

    async def replace(self, path: str, content: bytes) -> None:
        async with self._guard():
            await self._store.put_async(path, content, use_multipart=False)

    async def write(self, path: str, body: bytes | Path, size: int, content_type: str) -> None:
        """Write a body that may be large; it is complete once this returns, else it does not exist."""
        attributes = {"Content-Type": content_type, "Content-Disposition": "attachment"}
        async with self._guard(size):
            await self._store.put_async(
                path, body, attributes=attributes, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )

    async def read(self, path: str) -> bytes:
        async with self._guard():
            answer = await self._store.get_async(path)
            return bytes(await answer.bytes_async())

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        async with self._guard():
            answer = await self._store.get_async(path)
        chunks = answer.stream(min_chunk_size=CHUNK_BYTES)
        while True:
            async with self._guard():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def size(self, path: str) -> int | None:
        """The size in bytes; None if the path does not exist."""
        try:
            async with self._guard():
                return (await self._store.head_async(path))["size"]
        except FileNotFoundError:
            return None

    async def copy(self, source: str, target: str, size: int) -> None:
        async with self._guard(size):
            await self._store.copy_async(source, target)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove paths; missing ones are no error."""
        if paths:
            async with self._guard():
                await self._store.delete_async(paths)

    async def list(self, prefix: str) -> AsyncIterator[Stored]:
        """Everything below a prefix, "" for all; what belongs to one key comes together."""
        pages: Any = self._store.list(prefix or None)
        while True:
            async with self._guard():
                page = await anext(pages, None)
            if page is None:
                return
            for found in page:
                yield Stored(found["path"], found["last_modified"])

    async def sign(self, method: Literal["GET", "PUT"], path: str, lifetime: timedelta) -> str:
        """A signed URL that allows this one request for so long."""
        async with self._guard():
            return await obstore.sign_async(self._signing, method, path, lifetime)

    @asynccontextmanager
    async def _guard(self, size: int = 0) -> AsyncIterator[None]:
        span = self._deadline * (1 + size / BYTES_PER_DEADLINE)
        try:
            async with asyncio.timeout(span):
                yield
        except AlreadyExistsError:
            raise Taken from None
        except TimeoutError:
            raise ObjectsUnavailable(f"{self._url} gave no answer within {span:g} s") from None
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._explained(error) from None
            raise
        except BaseError as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> ObjectsUnavailable:
        """The error as text without any part of a signature or a key."""
        text = str(error)
        code, status = _CODE.search(text), _STATUS.search(text)
        if code and code[1] == "NoSuchBucket":
            return ObjectsUnavailable(f"{self._url}: there is no bucket {self._name!r}; create it first")
        why = code[1] if code else f"status {status[1]}" if status else "no connection"
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or (status and status[1] in {"401", "403"}):
            return ObjectsUnavailable(
                f"{self._url} refuses these credentials ({why}): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                f"and that they may read, write, list and delete there"
            )
        return ObjectsUnavailable(f"{self._url} cannot be used now: {why}")


def _parted(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidSetting(f"{url!r} does not name a bucket: expected something like s3://bucket/prefix")
    return parts.netloc, parts.path.strip("/")


def _store(bucket: str, prefix: str, access: Access, endpoint: str | None, deadline: timedelta) -> S3Store:
    options: dict[str, Any] = {
        "endpoint": endpoint,
        "region": access.region,
        "access_key_id": access.access_key,
        "secret_access_key": access.secret_key,
        "session_token": access.session_token,
    }
    try:
        return S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "allow_http": (endpoint or "").startswith("http://"),
                "connect_timeout": min(_CONNECT, deadline),
                # No limit for a whole file: each single wait has the deadline.
                "timeout": timedelta(days=1),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": deadline},
            **{name: value for name, value in options.items() if value is not None},
        )
    except BaseError as error:
        raise InvalidSetting(f"s3://{bucket} cannot be used: {str(error).partition(chr(10))[0]}") from None
