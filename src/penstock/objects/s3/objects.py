"""Objects in a bucket, each as a small record and the bytes it names.

    <prefix>/<key>.object           the record: size, digest, content type and the name of the bytes
    <prefix>/<key>.data/<random>    the bytes; counted only when a record names them and they are as many as it says

An object exists by its record, which is written last, create-only, in one request. So no reader sees half an object,
two writers of one key never mix, and a large one may be sent in parts, for which S3 has no create-only write. A direct
upload writes the record first: then the object exists as soon as its bytes do. Bytes that no record names are removed.
"""

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Self

import msgspec

from penstock.model.clock import Clock
from penstock.model.errors import Conflict, CorruptObject, InvalidSetting, NotFound, ObjectsUnavailable
from penstock.model.job import ObjectLink
from penstock.objects.s3.bucket import Access, Bucket, Taken
from penstock.objects.s3.spool import Spool
from penstock.objects.seam import check_content_type, check_key

DEADLINE = timedelta(seconds=15)
SINGLE_PUT_MAX = 5 << 30
"""S3 takes no larger body in one request."""

logger = logging.getLogger(__name__)

_PATH = re.compile(r"(?P<key>.+?)\.(?:object|data/[0-9a-f]+)")
_PLAIN_TYPE = re.compile(r"[\x20-\x7e]+/[\x20-\x7e]+")
_UNTOLD = "application/octet-stream"


class Record(msgspec.Struct, frozen=True):
    """The description of an object; `data` names its bytes."""

    size: int
    digest: str
    content_type: str
    data: str

    def link(self, key: str) -> ObjectLink:
        return ObjectLink(key, self.size, self.digest, self.content_type)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class S3Objects:
    """Objects below `s3://bucket/prefix`. No request takes longer than `deadline`, plus the time for its bytes.

    The age of an object is the store's time against this machine's clock: they should agree within minutes, which
    signed requests need anyway.
    """

    def __init__(self, url: str, clock: Clock, access: Access | None = None, deadline: timedelta = DEADLINE) -> None:
        self._bucket = Bucket(url, access or Access(), deadline)
        self._clock = clock
        self._url = url
        self._proved = True
        self._proving: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        access: Access | None = None,
        deadline: timedelta = DEADLINE,
        *,
        probe: bool = True,
    ) -> Self:
        """Open the bucket. If it does not answer, that is logged, and each call fails until it does; see `probe`.

        Without `probe` it is probed before the first write: a process that only reads may have no right to write.
        """
        objects = cls(url, clock, access, deadline)
        if not probe:
            objects._proved = False
            return objects
        try:
            await objects.probe()
        except ObjectsUnavailable as error:
            objects._proved = False
            logger.warning(
                "%s; starting without it: files and large values are refused until it answers", error.message
            )
        return objects

    async def probe(self) -> None:
        """Return if objects can be written, protected from being replaced, and deleted; ObjectsUnavailable if not.

        InvalidSetting where a store takes conditional writes and ignores the condition.
        """
        path = _record_path(f"uploads/probe-{secrets.token_hex(8)}")
        await self._bucket.create(path, b"{}")
        try:
            await self._bucket.create(path, b"{}")
        except Taken:
            return
        finally:
            await self._bucket.delete([path])
        raise InvalidSetting(f"{self._url} does not honour If-None-Match: objects there could replace each other")

    async def _prove(self) -> None:
        """Probe a bucket that did not answer at start before the first write. Concurrent callers share one probe."""
        if self._proved:
            return
        if self._proving is None:
            self._proving = asyncio.create_task(self.probe())
            self._proving.add_done_callback(self._note_probe)
        await asyncio.shield(self._proving)

    def _note_probe(self, probe: asyncio.Task[None]) -> None:
        self._proving = None
        self._proved = not probe.cancelled() and probe.exception() is None

    async def _create(self, path: str, content: bytes) -> None:
        """Write a record that must not exist; Taken if it does."""
        try:
            await self._prove()
        except InvalidSetting as error:
            # Found only now, as the store did not answer at start: not the fault of this caller.
            raise ObjectsUnavailable(error.message) from error
        await self._bucket.create(path, content)

    async def put(
        self, key: str, body: AsyncIterator[bytes], content_type: str, digest: str | None = None
    ) -> ObjectLink:
        check_key(key)
        check_content_type(content_type)
        with Spool() as spool:
            await spool.take(body)
            if digest is not None and digest != spool.digest:
                raise CorruptObject(
                    f"object {key!r} was not stored: its digest is {spool.digest}, not the announced {digest}"
                )
            record = _new_record(spool.size, spool.digest, content_type)
            path = _data_path(key, record)
            await self._bucket.write(path, spool.content, spool.size, _header_type(content_type))
        return await self._keep(key, record)

    async def stat(self, key: str) -> ObjectLink | None:
        check_key(key)
        record = await self._record(key)
        return record.link(key) if record is not None and await self._has_arrived(key, record) else None

    async def read(self, link: ObjectLink) -> AsyncIterator[bytes]:
        check_key(link.key)
        record = await self._require_record(link.key)
        left, digest = link.size, hashlib.sha256()
        try:
            async for chunk in self._bucket.stream(_data_path(link.key, record)):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                yield chunk
        except FileNotFoundError:
            raise NotFound(f"object {link.key!r} does not exist") from None
        if left or digest.hexdigest() != link.digest:
            raise CorruptObject(f"object {link.key!r} is not what was stored: its bytes do not match their digest")

    async def copy(self, source: str, target: str) -> ObjectLink:
        check_key(source)
        check_key(target)
        original = await self._record(source)
        if original is None or not await self._has_arrived(source, original):
            raise NotFound(f"object {source!r} does not exist, or not all of it has arrived; it cannot be copied")
        if await self.stat(target) is None:
            try:
                return await self._copy(source, original, target)
            except Conflict:
                """Another writer was faster: its object may be the same."""
        return await self._refresh(original, target)

    async def delete(self, prefix: str) -> int:
        check_key(prefix)
        paths = [_record_path(prefix)] if await self._record(prefix) is not None else []
        for below in (f"{prefix}.data", prefix):
            paths += [found.path async for found in self._bucket.list(below) if _key_of(found.path) is not None]
        # Records first, so that none is left without its bytes.
        await self._bucket.delete([path for path in paths if path.endswith(".object")])
        await self._bucket.delete([path for path in paths if not path.endswith(".object")])
        return len({_key_of(path) for path in paths})

    async def scan(self, prefix: str, older_than: timedelta) -> AsyncIterator[str]:
        """As the seam says; an empty prefix means all objects."""
        if prefix:
            check_key(prefix)
        before = self._clock.now() - older_than
        async for key, newest in self._ages(prefix):
            if newest < before:
                yield key

    async def upload_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        check_key(link.key)
        check_content_type(link.content_type)
        if link.size > SINGLE_PUT_MAX:
            return None
        record = _new_record(link.size, link.digest, link.content_type)
        try:
            await self._create(_record_path(link.key), record.encoded())
        except Taken:
            record = await self._require_record(link.key)
            if record.link(link.key) != link:
                raise Conflict(f"object {link.key!r} exists already, or was announced with other content") from None
        return await self._bucket.sign("PUT", _data_path(link.key, record), lifetime)

    async def download_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        check_key(link.key)
        return await self._bucket.sign("GET", _data_path(link.key, await self._require_record(link.key)), lifetime)

    async def close(self) -> None:
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait([self._proving])

    async def _keep(self, key: str, record: Record) -> ObjectLink:
        """Write the record of stored bytes; Conflict, and the bytes are removed, if another record has the key.

        Without an answer the bytes stay: the record may have been written all the same.
        """
        try:
            await self._create(_record_path(key), record.encoded())
        except Taken:
            if not await self._fulfil(key, record):
                raise Conflict(f"object {key!r} exists already; objects are never replaced") from None
        return record.link(key)

    async def _fulfil(self, key: str, record: Record) -> bool:
        """Whether the existing record is this call's or of a direct upload of the same bytes, which are stored then."""
        there = await self._record(key)
        if there == record:
            return True
        path = _data_path(key, record)
        awaited = there is not None and there.link(key) == record.link(key) and not await self._has_arrived(key, there)
        if awaited and there is not None:
            await self._bucket.copy(path, _data_path(key, there), record.size)
        await self._bucket.delete([path])
        return awaited

    async def _copy(self, source: str, original: Record, target: str) -> ObjectLink:
        record = _new_record(original.size, original.digest, original.content_type)
        try:
            await self._bucket.copy(_data_path(source, original), _data_path(target, record), original.size)
        except FileNotFoundError:
            raise NotFound(f"object {source!r} is gone, so it cannot be copied") from None
        return await self._keep(target, record)

    async def _refresh(self, original: Record, target: str) -> ObjectLink:
        """The target, with a new timestamp, if it is the same object as the original."""
        there = await self._require_record(target)
        if (there.size, there.digest) != (original.size, original.digest):
            raise Conflict(f"object {target!r} exists already, and is not a copy of what was asked for")
        await self._bucket.replace(_record_path(target), there.encoded())
        if not await self._has_arrived(target, there):
            raise NotFound(f"object {target!r} was removed meanwhile")
        return there.link(target)

    async def _record(self, key: str) -> Record | None:
        try:
            raw = await self._bucket.read(_record_path(key))
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(raw, type=Record)
        except msgspec.MsgspecError:
            raise CorruptObject(f"object {key!r} is damaged: its record cannot be read") from None

    async def _require_record(self, key: str) -> Record:
        record = await self._record(key)
        if record is None:
            raise NotFound(f"object {key!r} does not exist")
        return record

    async def _has_arrived(self, key: str, record: Record) -> bool:
        return await self._bucket.size(_data_path(key, record)) == record.size

    async def _ages(self, prefix: str) -> AsyncIterator[tuple[str, datetime]]:
        """Every key below a prefix, with the time of its youngest item."""
        key, newest = None, self._clock.now()
        async for found in self._bucket.list(prefix):
            if (owner := _key_of(found.path)) is None:
                continue
            if owner != key:
                if key is not None:
                    yield key, newest
                key, newest = owner, found.modified_at
            newest = max(newest, found.modified_at)
        if key is not None:
            yield key, newest


def _new_record(size: int, digest: str, content_type: str) -> Record:
    return Record(size, digest, content_type, secrets.token_hex(16))


def _record_path(key: str) -> str:
    return f"{key}.object"


def _data_path(key: str, record: Record) -> str:
    return f"{key}.data/{record.data}"


def _key_of(path: str) -> str | None:
    """The key that a path belongs to; None for other paths."""
    named = _PATH.fullmatch(path)
    return named["key"] if named else None


def _header_type(content_type: str) -> str:
    """The content type that the store sends to a browser: a header cannot hold every text that a record can."""
    return content_type if _PLAIN_TYPE.fullmatch(content_type) else _UNTOLD
