"""What every object store must do: a pytest class that the test of a backend subclasses, with a fixture and hooks."""

import asyncio
import hashlib
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.errors import Conflict, CorruptObject, Invalid, NotFound
from penstock.model.job import ObjectLink
from penstock.objects.seam import ObjectStore

TEXT = "text/plain"
MIB = 1 << 20
ZERO = timedelta(0)
HOUR = timedelta(hours=1)

BAD_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    "..",
    "a/../b",
    "./a",
    "a/.hidden",
    "a\\b",
    "a\0b",
    "a\n",
    "A",
    "é",
    "a b",
    "a%2fb",
    "a" * 300,
    "a/" * 400 + "a",
]


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def repeat_chunk(chunk: bytes, times: int) -> AsyncIterator[bytes]:
    for _ in range(times):
        yield chunk


async def break_off(*chunks: bytes) -> AsyncIterator[bytes]:
    """A client that goes away in the middle."""
    for chunk in chunks:
        yield chunk
    raise ConnectionResetError("the client went away")


async def stall(started: asyncio.Event) -> AsyncIterator[bytes]:
    """A client that says no more."""
    yield bytes(2 * MIB)
    started.set()
    await asyncio.Event().wait()


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class ObjectsContract(ABC):
    """The promises of `penstock.objects.seam`, each as a test."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> Any:
        """An empty store, closed afterwards."""

    @abstractmethod
    def advance(self, store: Any, span: timedelta) -> None:
        """Hook: let this much time pass, by the clock the store was given."""

    @abstractmethod
    async def damage(self, store: Any, key: str) -> None:
        """Hook: change one byte of a stored object behind the store's back."""

    async def keep(self, store: ObjectStore, key: str, content: bytes = b"content") -> ObjectLink:
        return await store.put(key, body(content), TEXT)

    async def keys(self, store: ObjectStore, prefix: str, older_than: timedelta = ZERO) -> list[str]:
        return sorted([key async for key in store.scan(prefix, older_than)])

    # -- put, stat, read

    @pytest.mark.parametrize("size", [0, 1, 1000, MIB - 1, MIB, MIB + 1, 3 * MIB + 7])
    async def test_what_is_put_is_read(self, store: ObjectStore, size: int) -> None:
        content = bytes(range(256)) * (size // 256 + 1)
        content = content[:size]
        link = await store.put("jobs/a/1", body(*_cut(content, 65_521)), TEXT)
        assert link == ObjectLink("jobs/a/1", size, sha256(content), TEXT)
        assert await store.stat("jobs/a/1") == link
        assert await whole(store.read(link)) == content

    async def test_an_empty_body_is_an_object(self, store: ObjectStore) -> None:
        link = await store.put("a", body(), TEXT)
        assert (link.size, link.digest) == (0, sha256(b""))
        assert await whole(store.read(link)) == b""

    async def test_the_content_type_is_kept(self, store: ObjectStore) -> None:
        await store.put("a", body(b"x"), 'multipart/mixed; boundary="ö"')
        link = await store.stat("a")
        assert link is not None
        assert link.content_type == 'multipart/mixed; boundary="ö"'

    async def test_there_is_no_link_without_an_object(self, store: ObjectStore) -> None:
        await self.keep(store, "a/b/c")
        assert await store.stat("a/b") is None
        assert await store.stat("a/b/d") is None

    async def test_an_object_is_never_replaced(self, store: ObjectStore) -> None:
        link = await self.keep(store, "a", b"first")
        with pytest.raises(Conflict):
            await store.put("a", body(b"second"), TEXT)
        with pytest.raises(Conflict):
            await store.put("a", body(b"first"), TEXT)
        assert await whole(store.read(link)) == b"first"

    async def test_of_concurrent_puts_exactly_one_wins(self, store: ObjectStore) -> None:
        contents = [str(number).encode() * 1000 for number in range(16)]
        answers = await asyncio.gather(
            *(store.put("a/b", body(*_cut(content, 100)), TEXT) for content in contents), return_exceptions=True
        )
        links = [answer for answer in answers if isinstance(answer, ObjectLink)]
        assert len(links) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 15
        assert sha256(await whole(store.read(links[0]))) == links[0].digest
        assert await store.stat("a/b") == links[0]

    async def test_an_object_may_stand_above_others(self, store: ObjectStore) -> None:
        links = [await self.keep(store, key, key.encode()) for key in ("a/b", "a", "a/b/c")]
        for link in links:
            assert await whole(store.read(link)) == link.key.encode()

    async def test_an_announced_digest_is_compared(self, store: ObjectStore) -> None:
        await store.put("good", body(b"con", b"tent"), TEXT, sha256(b"content"))
        with pytest.raises(CorruptObject):
            await store.put("bad", body(b"con", b"tend"), TEXT, sha256(b"content"))
        assert await store.stat("bad") is None
        await self.keep(store, "bad")

    async def test_a_body_that_breaks_off_leaves_nothing(self, store: ObjectStore) -> None:
        with pytest.raises(ConnectionResetError):
            await store.put("a", break_off(b"x" * MIB, b"y" * MIB), TEXT)
        assert await store.stat("a") is None
        self.advance(store, HOUR)
        assert await self.keys(store, "") == []
        await self.keep(store, "a")

    async def test_a_cancelled_put_leaves_nothing(self, store: ObjectStore) -> None:
        started = asyncio.Event()
        put = asyncio.ensure_future(store.put("a", stall(started), TEXT))
        await started.wait()
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        assert await store.stat("a") is None
        await self.keep(store, "a")

    async def test_a_large_object_passes_through_little_memory(self, store: ObjectStore) -> None:
        chunk, times = bytes(64 << 10), 1024
        tracemalloc.start()
        try:
            link = await store.put("large", repeat_chunk(chunk, times), TEXT)
            size = sum([len(block) async for block in store.read(link)])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert size == link.size == 64 * MIB
        assert peak < 16 * MIB

    # -- what reading must notice

    async def test_reading_what_is_not_there_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(NotFound):
            await whole(store.read(ObjectLink("a", 1, sha256(b"x"))))

    async def test_a_deleted_object_is_gone(self, store: ObjectStore) -> None:
        link = await self.keep(store, "a")
        await store.delete("a")
        assert await store.stat("a") is None
        with pytest.raises(NotFound):
            await whole(store.read(link))

    async def test_a_damaged_object_is_noticed(self, store: ObjectStore) -> None:
        link = await self.keep(store, "a", b"x" * 3 * MIB)
        await self.damage(store, "a")
        with pytest.raises(CorruptObject):
            await whole(store.read(link))

    @pytest.mark.parametrize("change", [{"digest": sha256(b"other")}, {"size": 3}, {"size": 8}, {"size": 10_000}])
    async def test_a_link_to_other_bytes_is_noticed(self, store: ObjectStore, change: dict[str, Any]) -> None:
        link = await self.keep(store, "a", b"content")
        with pytest.raises(CorruptObject):
            await whole(store.read(replace(link, **change)))

    async def test_a_reader_may_stop_early(self, store: ObjectStore) -> None:
        link = await self.keep(store, "a", b"x" * 3 * MIB)
        chunks = store.read(link)
        assert await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]
        assert len(await whole(store.read(link))) == 3 * MIB

    # -- copy

    async def test_a_copy_is_the_same_object_by_another_name(self, store: ObjectStore) -> None:
        link = await self.keep(store, "uploads/a")
        copied = await store.copy("uploads/a", "jobs/b/1")
        assert copied == replace(link, key="jobs/b/1")
        assert await store.stat("jobs/b/1") == copied
        assert await whole(store.read(copied)) == b"content"

    async def test_a_copy_outlives_its_source(self, store: ObjectStore) -> None:
        await self.keep(store, "uploads/a")
        copied = await store.copy("uploads/a", "jobs/b/1")
        await store.delete("uploads/a")
        assert await whole(store.read(copied)) == b"content"

    async def test_copying_again_changes_nothing(self, store: ObjectStore) -> None:
        await self.keep(store, "a")
        assert await store.copy("a", "b") == await store.copy("a", "b")
        assert await store.copy("a", "a") == await store.stat("a")

    async def test_copies_made_at_once_agree(self, store: ObjectStore) -> None:
        await self.keep(store, "a")
        assert len(set(await asyncio.gather(*(store.copy("a", "deep/b") for _ in range(8))))) == 1

    async def test_a_copy_does_not_replace_another_object(self, store: ObjectStore) -> None:
        await self.keep(store, "a", b"first")
        other = await self.keep(store, "b", b"other")
        with pytest.raises(Conflict):
            await store.copy("a", "b")
        assert await whole(store.read(other)) == b"other"

    async def test_there_is_no_copy_without_a_source(self, store: ObjectStore) -> None:
        await self.keep(store, "b")
        for target in ("b", "c"):
            with pytest.raises(NotFound):
                await store.copy("a", target)

    async def test_a_copy_is_as_young_as_its_copying(self, store: ObjectStore) -> None:
        """Or a sweep of old uploads could take what a job is about to link."""
        for key in ("a", "there"):
            await self.keep(store, key)
        self.advance(store, 2 * HOUR)
        for target in ("new/b", "there"):
            await store.copy("a", target)
        assert await self.keys(store, "new", HOUR) == []
        assert "there" not in await self.keys(store, "", HOUR)

    # -- delete and scan

    async def test_delete_takes_the_key_and_all_below_it(self, store: ObjectStore) -> None:
        for key in ("a", "a/b", "a/b/c", "a/d/e/f", "ab", "b/a", "a-"):
            await self.keep(store, key)
        assert await store.delete("a") == 4
        self.advance(store, HOUR)
        assert await self.keys(store, "") == ["a-", "ab", "b/a"]
        assert await store.delete("a") == 0

    async def test_what_was_deleted_may_be_put_again(self, store: ObjectStore) -> None:
        for _ in range(3):
            await self.keep(store, "a/b/c")
            assert await store.delete("a") == 1

    async def test_deletes_and_puts_nearby_do_not_meet(self, store: ObjectStore) -> None:
        async def come_and_go(name: str) -> None:
            for _ in range(20):
                await self.keep(store, f"a/b/{name}/c")
                assert await store.delete(f"a/b/{name}") == 1

        await asyncio.gather(*(come_and_go(name) for name in "defg"))

    async def test_scan_finds_what_is_older(self, store: ObjectStore) -> None:
        await self.keep(store, "uploads/old")
        self.advance(store, 2 * HOUR)
        await self.keep(store, "uploads/new")
        assert await self.keys(store, "uploads", HOUR) == ["uploads/old"]
        assert await self.keys(store, "uploads", 3 * HOUR) == []

    async def test_scan_keeps_to_its_prefix(self, store: ObjectStore) -> None:
        for key in ("a/b", "a/c/d", "ab/c", "b/a"):
            await self.keep(store, key)
        self.advance(store, HOUR)
        assert await self.keys(store, "a") == ["a/b", "a/c/d"]
        assert await self.keys(store, "c") == []

    async def test_scan_passes_over_many(self, store: ObjectStore) -> None:
        expected = [f"many/{number:04}/x" for number in range(600)]
        await asyncio.gather(*(self.keep(store, key, b"") for key in expected))
        self.advance(store, HOUR)
        assert await self.keys(store, "many") == expected

    # -- keys

    @pytest.mark.parametrize("key", BAD_KEYS)
    async def test_a_bad_key_is_refused(self, store: ObjectStore, key: str) -> None:
        good = (await self.keep(store, "good")).key
        with pytest.raises(Invalid):
            await store.put(key, body(b"x"), TEXT)
        with pytest.raises(Invalid):
            await store.stat(key)
        with pytest.raises(Invalid):
            await whole(store.read(ObjectLink(key, 1, sha256(b"x"))))
        with pytest.raises(Invalid):
            await store.copy(key, "b")
        with pytest.raises(Invalid):
            await store.copy(good, key)
        with pytest.raises(Invalid):
            await store.delete(key)
        if key:
            with pytest.raises(Invalid):
                await self.keys(store, key)
        assert await store.stat("good")


def _cut(content: bytes, size: int) -> Iterable[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))
