"""Objects as files in a folder: for one machine, or for several that share a file system with hard links.

    objects/<key>.object     the bytes, and behind them a footer with size, digest and content type
    incoming/<random name>   a put under way

One file holds everything about an object, and gets its name in one step after its bytes are durable: no crash can leave
half an object. What a crash leaves in `incoming` is removed when the folder is next opened.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO, TypeVar

import msgspec

from penstock.model.clock import Clock, to_millis
from penstock.model.errors import Conflict, CorruptObject, NotFound, ObjectsUnavailable
from penstock.model.job import ObjectLink
from penstock.objects.seam import check_content_type, check_key

T = TypeVar("T")

BLOCK = 1 << 20
SCAN_BATCH = 256
SUFFIX = ".object"
RACES = 100

_CANNOT_LINK = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.ENOTSUP})


class FolderObjects:
    """Objects below `root`, readable by this user only. Creates the folders and removes what crashes left."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._objects = root / "objects"
        self._incoming = root / "incoming"
        with _available(root):
            for folder in (root, self._objects, self._incoming):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in self._incoming.iterdir():
                sweep(path)

    async def put(
        self, key: str, body: AsyncIterator[bytes], content_type: str, digest: str | None = None
    ) -> ObjectLink:
        path = self._path(key)
        check_content_type(content_type)
        upload = FolderUpload(self._incoming)
        try:
            async for block in _blocks(body):
                await self._off_loop(upload.write, block)
            return await self._off_loop(self._keep, upload, key, path, content_type, digest)
        finally:
            await self._off_loop(upload.discard)

    async def stat(self, key: str) -> ObjectLink | None:
        return await self._off_loop(read_footer, key, self._path(key))

    async def read(self, link: ObjectLink) -> AsyncIterator[bytes]:
        path, left, digest = self._path(link.key), link.size, hashlib.sha256()
        with ExitStack() as opened:
            file = await self._off_loop(_open, link.key, path, opened)
            while left and (block := await self._off_loop(_read, file, min(left, BLOCK), digest.update)):
                left -= len(block)
                yield block
        if left or digest.hexdigest() != link.digest:
            raise CorruptObject(f"object {link.key!r} is not what was stored: its bytes do not match their digest")

    async def copy(self, source: str, target: str) -> ObjectLink:
        return await self._off_loop(self._copy, source, self._path(source), target, self._path(target))

    async def delete(self, prefix: str) -> int:
        return await self._off_loop(self._delete, self._path(prefix))

    async def scan(self, prefix: str, older_than: timedelta) -> AsyncIterator[str]:
        """As the seam says; an empty prefix means all objects."""
        folder = self._path(prefix).with_suffix("") if prefix else self._objects
        keys = self._stored_before(folder, self._now_ns(older_than))
        while batch := await self._off_loop(lambda: list(islice(keys, SCAN_BATCH))):
            for key in batch:
                yield key

    async def upload_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        """None: clients cannot reach the folder."""
        return None

    async def download_url(self, link: ObjectLink, lifetime: timedelta) -> str | None:
        """None: clients cannot reach the folder."""
        return None

    async def close(self) -> None:
        return None

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._objects / f"{key}{SUFFIX}"

    def _now_ns(self, ago: timedelta = timedelta(0)) -> int:
        return to_millis(self._clock.now() - ago) * 1_000_000

    async def _off_loop(self, work: Callable[..., T], *args: object) -> T:
        """Run blocking work in a thread. A cancelled caller waits for its end: no file is closed while in use."""
        with _available(self._root):
            return await _await_end(asyncio.ensure_future(asyncio.to_thread(work, *args)))

    def _keep(self, upload: "FolderUpload", key: str, path: Path, content_type: str, digest: str | None) -> ObjectLink:
        link = ObjectLink(key, upload.size, upload.digest, content_type)
        if digest is not None and digest != link.digest:
            raise CorruptObject(
                f"object {key!r} was not stored: its digest is {link.digest}, not the announced {digest}"
            )
        upload.write(footer(link))
        upload.sync(self._now_ns())
        try:
            self._link(upload.path, path)
        except FileExistsError:
            raise Conflict(f"object {key!r} exists already; objects are never replaced") from None
        return link

    def _copy(self, source: str, source_path: Path, target: str, target_path: Path) -> ObjectLink:
        original = read_footer(source, source_path)
        if original is None:
            raise NotFound(f"object {source!r} does not exist, so it cannot be copied")
        # Both names share one timestamp: the copy must look as young as it is, and the source may look younger.
        os.utime(source_path, ns=(self._now_ns(),) * 2)
        with suppress(FileExistsError):
            self._link_or_duplicate(source_path, target_path)
        copied = read_footer(target, target_path)
        if copied is None or (copied.size, copied.digest) != (original.size, original.digest):
            raise Conflict(f"object {target!r} exists already, and is not a copy of {source!r}")
        os.utime(target_path, ns=(self._now_ns(),) * 2)
        return copied

    def _link_or_duplicate(self, source: Path, target: Path) -> None:
        try:
            self._link(source, target)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            self._duplicate(source, target)

    def _duplicate(self, source: Path, target: Path) -> None:
        upload = FolderUpload(self._incoming)
        try:
            with source.open("rb") as file:
                while block := file.read(BLOCK):
                    upload.write(block)
            upload.sync(self._now_ns())
            self._link(upload.path, target)
        finally:
            upload.discard()

    def _link(self, source: Path, target: Path) -> None:
        """Give a synced file its name, durably; FileExistsError if the name is taken."""
        self._link_in_folder(source, target)
        try:
            self._sync_folders(target.parent)
        except OSError:
            # It was not acknowledged, so a repeated call must not find it.
            target.unlink(missing_ok=True)
            raise

    def _link_in_folder(self, source: Path, target: Path) -> None:
        for _ in range(RACES):
            # A concurrent delete may remove the folder, still empty, before the link is in it.
            with suppress(FileNotFoundError):
                self._make_folders(target.parent)
                return os.link(source, target)
        raise FileNotFoundError(errno.ENOENT, "gone before it could be linked", str(source))

    def _make_folders(self, folder: Path) -> None:
        for above in reversed([folder, *folder.parents]):
            if self._objects in above.parents:
                # Not `exist_ok`: if the folder is removed meanwhile, it raises FileExistsError.
                with suppress(FileExistsError):
                    above.mkdir(mode=0o700)

    def _sync_folders(self, folder: Path) -> None:
        """Sync all folders above a name: the put that made one may not have synced it yet."""
        for above in (folder, *folder.parents):
            _sync_folder(above)
            if above == self._objects:
                return

    def _delete(self, path: Path) -> int:
        folder = path.with_suffix("")
        count = _unlink(path)
        for parent, _, names in os.walk(folder, topdown=False, onerror=_unless_gone):
            count += sum(_unlink(Path(parent, name)) for name in names)
            _remove_if_empty(Path(parent))
        for above in folder.parents:
            if above == self._objects or not _remove_if_empty(above):
                break
        return count

    def _stored_before(self, folder: Path, ns: int) -> Iterator[str]:
        for parent, _, names in os.walk(folder, onerror=_unless_gone):
            for path in (Path(parent, name) for name in names):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns < ns:
                        yield str(path.relative_to(self._objects)).removesuffix(SUFFIX)


class FolderUpload:
    """A file being written that has no name among the objects yet.

    It stays locked while it is open, so that a sweep can tell it from one whose writer has died.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / secrets.token_hex(16)
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO | None = None

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, block: bytes) -> None:
        self._open().write(block)
        self._hash.update(block)
        self.size += len(block)

    def sync(self, stored_at_ns: int) -> None:
        """Sync the file to the disk, with the time at which it was stored."""
        file = self._open()
        file.flush()
        os.utime(file.fileno(), ns=(stored_at_ns, stored_at_ns))
        os.fsync(file.fileno())

    def discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            with suppress(OSError):
                self._file.close()

    def _open(self) -> BinaryIO:
        while self._file is None:
            file = os.fdopen(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
            if _locked(file) and os.fstat(file.fileno()).st_nlink:
                self._file = file
            else:
                # A sweep ran between creating and locking the file, and took it for an orphan.
                file.close()
                self.path = self.path.with_name(secrets.token_hex(16))
        return self._file


def sweep(path: Path) -> None:
    """Remove an incoming file unless its writer lives."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        if _locked(file):
            path.unlink(missing_ok=True)


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- the footer

_SEAL = Layout(">II8s")
_MAGIC = b"penstock"
_FOOTER_MAX = 4096


def footer(link: ObjectLink) -> bytes:
    """The footer after an object's bytes: a description, its length and checksum, and a magic number."""
    text = msgspec.json.encode((link.size, link.digest, link.content_type))
    return text + _SEAL.pack(len(text), zlib.crc32(text), _MAGIC)


def read_footer(key: str, path: Path) -> ObjectLink | None:
    """The link of the object in this file, None if there is no file; CorruptObject if its footer is not whole."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - _FOOTER_MAX))
            tail = file.read()
    except FileNotFoundError:
        return None
    text = _sealed(tail)
    size, digest, content_type = msgspec.json.decode(text, type=tuple[int, str, str]) if text else (-1, "", "")
    if size + len(text) + _SEAL.size != end:
        raise CorruptObject(f"object {key!r} is damaged: its file does not end in the footer it was stored with")
    return ObjectLink(key, size, digest, content_type)


def _sealed(tail: bytes) -> bytes:
    """The description in a footer; empty if it is damaged."""
    if len(tail) < _SEAL.size:
        return b""
    length, checksum, magic = _SEAL.unpack(tail[-_SEAL.size :])
    text = tail[-_SEAL.size - length : -_SEAL.size]
    return text if (zlib.crc32(text), magic) == (checksum, _MAGIC) else b""


# -- small steps


@contextmanager
def _available(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ObjectsUnavailable(f"the folder {root} cannot be used now: {error.strerror or error}") from error


async def _await_end(running: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        running.exception()
        raise


async def _blocks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in blocks large enough for a call in a thread."""
    pending = bytearray()
    async for chunk in body:
        pending += chunk
        if len(pending) >= BLOCK:
            yield bytes(pending)
            pending.clear()
    if pending:
        yield bytes(pending)


def _open(key: str, path: Path, opened: ExitStack) -> BinaryIO:
    try:
        return opened.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise NotFound(f"object {key!r} does not exist") from None


def _read(file: BinaryIO, size: int, seen: Callable[[bytes], None]) -> bytes:
    block = file.read(size)
    seen(block)
    return block


def _sync_folder(folder: Path) -> None:
    with suppress(FileNotFoundError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unlink(path: Path) -> int:
    with suppress(FileNotFoundError):
        path.unlink()
        return 1
    return 0


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder if it is empty."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
        return False
    return True


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
