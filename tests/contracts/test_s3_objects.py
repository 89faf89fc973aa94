"""A bucket keeps the contract of object stores, on a real S3 server, and says what is wrong when it cannot."""

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from penstock.model.clock import SystemClock
from penstock.model.errors import Conflict, CorruptObject, InvalidSetting, NotFound, ObjectsUnavailable
from penstock.model.job import ObjectLink
from penstock.objects.s3 import Access, S3Objects
from penstock.objects.s3.bucket import Bucket, Taken
from penstock.objects.s3.spool import MEMORY_BYTES
from penstock.testing.objects_contract import (
    HOUR,
    MIB,
    TEXT,
    ObjectsContract,
    body,
    break_off,
    repeat_chunk,
    sha256,
    whole,
)
from servers import FaultProxy
from servers.proxy import Fault
from servers.seaweed import ACCESS_KEY, SECRET_KEY
from tests.s3 import BUCKET, AgedObjects, access, behind, new_url, paths_in, seaweed

SOON = timedelta(minutes=5)
SHORT = timedelta(seconds=1)
CONTENT = b"content"


@pytest.fixture
def url() -> str:
    return new_url()


@pytest.fixture
async def store(url: str) -> AgedObjects:
    return AgedObjects(url)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(seaweed().port) as proxy:
        yield proxy


def through(proxy: FaultProxy, url: str, deadline: timedelta = SHORT) -> S3Objects:
    return S3Objects(url, SystemClock(), access(f"http://127.0.0.1:{proxy.port}"), deadline)


class TestS3Objects(ObjectsContract):
    @pytest.fixture
    async def store(self, url: str) -> AgedObjects:
        self.url = url
        return AgedObjects(url)

    def advance(self, store: Any, span: timedelta) -> None:
        store.age(span)

    async def damage(self, store: Any, key: str) -> None:
        (path,) = [path for path in await paths_in(self.url) if path.startswith(f"{key}.data/")]
        content = bytearray(await (await behind(self.url).get_async(path)).bytes_async())
        content[5] ^= 1
        await behind(self.url).put_async(path, bytes(content))


# -- whole or not at all


@pytest.mark.parametrize("beyond", [-1, 0, 1, MIB + 7])
async def test_a_body_is_kept_whole_in_memory_and_on_disk(store: AgedObjects, beyond: int) -> None:
    content = random.Random(7).randbytes(MEMORY_BYTES + beyond)
    link = await store.put("a", body(*_cut(content, 300_007)), TEXT, sha256(content))
    assert (link.size, link.digest) == (len(content), sha256(content))
    assert await store.stat("a") == link
    assert await whole(store.read(link)) == content


async def test_nothing_is_left_on_disk(store: AgedObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await store.put("a", repeat_chunk(bytes(MIB), 9), TEXT)
    with pytest.raises(ConnectionResetError):
        await store.put("b", break_off(*[bytes(MIB)] * 9), TEXT)
    assert _files_in(tmp_path) == []


async def test_a_full_disk_is_unavailable(store: AgedObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(ObjectsUnavailable, match="held on its way"):
        await store.put("a", repeat_chunk(bytes(MIB), 9), TEXT)


async def test_of_concurrent_large_puts_exactly_one_wins_and_leaves_one_body(store: AgedObjects, url: str) -> None:
    """Sent in parts, which S3 itself would let replace each other."""
    bodies = [repeat_chunk(bytes([number]) * MIB, 9) for number in range(4)]
    answers = await asyncio.gather(*(store.put("a", one, TEXT) for one in bodies), return_exceptions=True)
    (link,) = [answer for answer in answers if isinstance(answer, ObjectLink)]
    assert sum(isinstance(answer, Conflict) for answer in answers) == 3
    assert sha256(await whole(store.read(link))) == link.digest
    assert len(await paths_in(url)) == 2


async def test_a_record_that_was_written_without_our_hearing_of_it_is_ours(
    store: AgedObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the answer to the first try is lost and the second finds the key taken."""
    real = Bucket.create

    async def twice(bucket: Bucket, path: str, content: bytes) -> None:
        await real(bucket, path, content)
        await real(bucket, path, content)

    monkeypatch.setattr(Bucket, "create", twice)
    link = await store.put("a", body(CONTENT), TEXT)
    assert await whole(store.read(link)) == CONTENT


async def test_bytes_outlive_a_record_whose_writing_was_not_answered(
    store: AgedObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Bucket.create

    async def unheard(bucket: Bucket, path: str, content: bytes) -> None:
        await real(bucket, path, content)
        raise ObjectsUnavailable("no answer")

    monkeypatch.setattr(Bucket, "create", unheard)
    with pytest.raises(ObjectsUnavailable):
        await store.put("a", body(CONTENT), TEXT)
    link = await store.stat("a")
    assert link is not None
    assert await whole(store.read(link)) == CONTENT


async def test_bytes_without_a_record_are_no_object_and_are_found_by_a_scan(store: AgedObjects, url: str) -> None:
    await behind(url).put_async("a/b.data/00ff", b"left by a crash")
    assert await store.stat("a/b") is None
    assert [key async for key in store.scan("a", HOUR)] == []
    store.age(2 * HOUR)
    assert [key async for key in store.scan("a", HOUR)] == ["a/b"]
    assert await store.delete("a/b") == 1
    assert await paths_in(url) == []


async def test_an_object_is_as_young_as_the_youngest_part_of_it(store: AgedObjects, url: str) -> None:
    link = ObjectLink("a/b", len(CONTENT), sha256(CONTENT), TEXT)
    target = await store.upload_url(link, SOON)
    store.age(2 * HOUR)
    await store.put("a/c", body(b"x"), TEXT)
    await _send(target, CONTENT)
    assert [key async for key in store.scan("a", HOUR)] == []


async def test_what_is_not_ours_is_left_alone(store: AgedObjects, url: str) -> None:
    await store.put("a/b", body(CONTENT), TEXT)
    for path in ("a/readme.txt", "a/b.data/Notes", "a/b/c.objects"):
        await behind(url).put_async(path, b"theirs")
    store.age(HOUR)
    assert [key async for key in store.scan("", timedelta())] == ["a/b"]
    assert await store.delete("a") == 1
    assert await paths_in(url) == ["a/b.data/Notes", "a/b/c.objects", "a/readme.txt"]


async def test_a_damaged_record_is_said_to_be_damaged(store: AgedObjects, url: str) -> None:
    link = await store.put("a", body(CONTENT), TEXT)
    await behind(url).put_async("a.object", b"{")
    with pytest.raises(CorruptObject):
        await store.stat("a")
    with pytest.raises(CorruptObject):
        await whole(store.read(link))


def _files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def _cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


# -- URLs


def announced(content: bytes = CONTENT, key: str = "uploads/a") -> ObjectLink:
    return ObjectLink(key, len(content), sha256(content), TEXT)


async def _send(url: str | None, content: bytes) -> httpx2.Response:
    assert url is not None
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.put(url, content=content, headers={"Content-Type": TEXT})


async def _get(url: str | None) -> httpx2.Response:
    assert url is not None
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.get(url)


async def test_an_announced_object_exists_once_its_bytes_are_there(store: AgedObjects) -> None:
    link = announced()
    url = await store.upload_url(link, SOON)
    assert await store.stat(link.key) is None
    with pytest.raises(NotFound):
        await store.copy(link.key, "jobs/a")
    with pytest.raises(NotFound):
        await whole(store.read(link))
    assert (await _send(url, CONTENT)).status_code == 200
    assert await store.stat(link.key) == link
    assert await whole(store.read(await store.copy(link.key, "jobs/a"))) == CONTENT


@pytest.mark.parametrize("sent", [b"", b"conten", b"content!"])
async def test_another_number_of_bytes_does_not_count(store: AgedObjects, sent: bytes) -> None:
    link = announced()
    await _send(await store.upload_url(link, SOON), sent)
    assert await store.stat(link.key) is None
    with pytest.raises(NotFound):
        await store.copy(link.key, "jobs/a")


async def test_bytes_that_are_not_the_announced_ones_are_noticed_by_the_reader(store: AgedObjects) -> None:
    link = announced()
    await _send(await store.upload_url(link, SOON), b"CONTENT")
    assert await store.stat(link.key) == link
    with pytest.raises(CorruptObject):
        await whole(store.read(link))


async def test_the_same_may_be_announced_again_but_nothing_else(store: AgedObjects) -> None:
    link = announced()
    await store.upload_url(link, SOON)
    await _send(await store.upload_url(link, SOON), CONTENT)
    assert await store.stat(link.key) == link
    with pytest.raises(Conflict):
        await store.upload_url(replace(link, digest=sha256(b"other")), SOON)
    other = await store.put("b", body(b"x"), TEXT)
    with pytest.raises(Conflict):
        await store.upload_url(replace(link, key=other.key), SOON)


async def test_announced_bytes_may_come_by_the_other_way(store: AgedObjects, url: str) -> None:
    """As when whoever announced them cannot reach the store."""
    link = announced()
    await store.upload_url(link, SOON)
    with pytest.raises(Conflict):
        await store.put(link.key, body(b"others!"), TEXT)
    assert await store.put(link.key, body(CONTENT), TEXT) == link
    assert await whole(store.read(link)) == CONTENT
    assert len(await paths_in(url)) == 2
    with pytest.raises(Conflict):
        await store.put(link.key, body(CONTENT), TEXT)


async def test_what_was_announced_and_never_came_is_swept(store: AgedObjects, url: str) -> None:
    await store.upload_url(announced(), SOON)
    store.age(2 * HOUR)
    assert [key async for key in store.scan("uploads", HOUR)] == ["uploads/a"]
    assert await store.delete("uploads/a") == 1
    assert await paths_in(url) == []


async def test_an_object_can_be_had_from_the_store_itself(store: AgedObjects) -> None:
    link = await store.put("a", body(CONTENT), "text/csv")
    answer = await _get(await store.download_url(link, SOON))
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, CONTENT, "text/csv")
    assert answer.headers["content-disposition"] == "attachment"
    with pytest.raises(NotFound):
        await store.download_url(replace(link, key="b"), SOON)


async def test_a_url_ends_with_its_time_and_is_good_for_one_thing(store: AgedObjects) -> None:
    link = await store.put("a", body(CONTENT), TEXT)
    there = await store.download_url(link, timedelta(seconds=1))
    up = await store.upload_url(announced(key="b"), timedelta(seconds=1))
    assert (await _send(there, b"evil")).status_code == 403
    async with asyncio.timeout(60):
        while (await _get(there)).status_code != 403 or (await _send(up, CONTENT)).status_code != 403:
            """Only the server can tell."""
    assert await whole(store.read(link)) == CONTENT


async def test_a_body_too_large_for_one_request_has_no_url(store: AgedObjects) -> None:
    assert await store.upload_url(replace(announced(), size=(5 << 30) + 1), SOON) is None


async def test_a_url_names_the_address_that_others_know(url: str) -> None:
    seen = Access(seaweed().endpoint, "https://files.example.com", "us-east-1", ACCESS_KEY, SECRET_KEY)
    store = S3Objects(url, SystemClock(), seen)
    link = await store.put("a", body(CONTENT), TEXT)
    assert str(await store.download_url(link, SOON)).startswith(f"https://files.example.com/{BUCKET}/")


# -- trouble


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.REFUSING])
async def test_a_store_that_does_not_answer_is_unavailable_and_comes_back(
    store: AgedObjects, url: str, proxy: FaultProxy, fault: Fault
) -> None:
    link = await store.put("a", body(CONTENT), TEXT)
    far = through(proxy, url)
    proxy.fault = fault
    async with asyncio.timeout(60):
        answers = await asyncio.gather(
            far.put("b", body(CONTENT), TEXT),
            far.stat("a"),
            whole(far.read(link)),
            far.copy("a", "c"),
            far.delete("a"),
            anext(far.scan("", HOUR)),
            far.upload_url(announced(), SOON),
            far.download_url(link, SOON),
            far.probe(),
            return_exceptions=True,
        )
    assert [type(answer) for answer in answers] == [ObjectsUnavailable] * 9
    proxy.fault = Fault.NONE
    assert await whole(through(proxy, url, timedelta(seconds=30)).read(link)) == CONTENT
    assert await store.stat("b") is None


async def test_a_read_that_falls_silent_in_the_middle_is_unavailable(
    store: AgedObjects, url: str, proxy: FaultProxy
) -> None:
    link = await store.put("a", repeat_chunk(bytes(MIB), 64), TEXT)
    chunks = through(proxy, url).read(link)
    await anext(chunks)
    proxy.fault = Fault.SILENT
    async with asyncio.timeout(60):
        with pytest.raises(ObjectsUnavailable):
            await whole(chunks)


async def test_a_large_put_that_falls_silent_in_the_middle_leaves_nothing_to_see(
    store: AgedObjects, url: str, proxy: FaultProxy
) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(MIB)
        proxy.fault = Fault.SILENT

    async with asyncio.timeout(60):
        with pytest.raises(ObjectsUnavailable):
            await through(proxy, url).put("a", breaking(), TEXT)
    assert await store.stat("a") is None
    assert await paths_in(url) == []


async def test_a_slow_store_is_not_an_absent_one(url: str, proxy: FaultProxy) -> None:
    proxy.fault = Fault.SLOW
    far = through(proxy, url, timedelta(seconds=30))
    link = await far.put("a", body(CONTENT), TEXT)
    assert await whole(far.read(link)) == CONTENT


async def test_nobody_listening_is_unavailable(url: str) -> None:
    with pytest.raises(ObjectsUnavailable, match="no connection"):
        await S3Objects(url, SystemClock(), access("http://127.0.0.1:9"), SHORT).probe()


async def test_wrong_credentials_are_named_without_being_told(url: str) -> None:
    store = S3Objects(url, SystemClock(), access(secret="not-the-secret"))
    for asked in (store.probe(), store.stat("a"), store.delete("a"), anext(store.scan("", HOUR))):
        with pytest.raises(ObjectsUnavailable, match="AWS_SECRET_ACCESS_KEY") as refused:
            await asked
        assert "not-the-secret" not in str(refused.value)
        assert "<" not in str(refused.value), "the store's own words may hold what was signed"
        assert ACCESS_KEY not in str(refused.value).replace(BUCKET, "")


async def test_a_missing_bucket_is_said_to_be_missing() -> None:
    store = S3Objects("s3://penstock-nowhere/x", SystemClock(), access())
    with pytest.raises(ObjectsUnavailable, match="no bucket 'penstock-nowhere'; create it"):
        await store.stat("a")


async def test_credentials_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = await S3Objects.open(url, SystemClock(), Access(endpoint=seaweed().endpoint))
    link = await store.put("a", body(CONTENT), TEXT)
    assert await whole(store.read(link)) == CONTENT


@pytest.mark.parametrize(
    "bad", ["s3://", "http://bucket/x", "bucket", "s3:///x", "s3://b/x?y=1", "s3://key:secret@b/x"]
)
def test_what_is_no_bucket_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSetting):
        S3Objects(bad, SystemClock(), access())


async def test_opening_leaves_nothing_behind(url: str) -> None:
    await S3Objects.open(url, SystemClock(), access())
    assert await paths_in(url) == []


async def test_a_store_that_ignores_conditions_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def heedless(bucket: Bucket, path: str, content: bytes) -> None:
        await bucket.replace(path, content)

    monkeypatch.setattr(Bucket, "create", heedless)
    with pytest.raises(InvalidSetting, match="If-None-Match"):
        await S3Objects.open(url, SystemClock(), access())


async def test_the_server_itself_keeps_the_condition(url: str) -> None:
    bucket = Bucket(url, access(), timedelta(seconds=30))
    await bucket.create("a.object", json.dumps({}).encode())
    with pytest.raises(Taken):
        await bucket.create("a.object", b"other")
