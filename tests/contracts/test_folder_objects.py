"""The folder keeps the contract of object stores, and survives what happens to files."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.model.clock import SystemClock
from penstock.model.errors import Conflict, CorruptObject, Invalid, ObjectsUnavailable
from penstock.objects.folder import FolderObjects, FolderUpload
from penstock.testing.objects_contract import MIB, TEXT, ObjectsContract, body, stall, whole


class MovedClock(SystemClock):
    """A clock that tests move."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, span: timedelta) -> None:
        self._now += span


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def store(root: Path, clock: MovedClock) -> AsyncIterator[FolderObjects]:
    store = FolderObjects(root, clock)
    yield store
    await store.close()
    assert list((root / "incoming").iterdir()) == []


def file_of(root: Path, key: str) -> Path:
    return root / "objects" / f"{key}.object"


def modes_below(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in root.rglob("*")}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


class TestFolderObjects(ObjectsContract):
    @pytest.fixture
    async def store(self, root: Path, clock: MovedClock) -> AsyncIterator[FolderObjects]:
        self.root, self.clock = root, clock
        yield FolderObjects(root, clock)
        assert list((root / "incoming").iterdir()) == []

    def advance(self, store: Any, span: timedelta) -> None:
        self.clock.advance(span)

    async def damage(self, store: Any, key: str) -> None:
        flip(file_of(self.root, key), 5)


# -- files


async def test_files_are_for_this_user_only(store: FolderObjects, root: Path) -> None:
    before = os.umask(0)
    try:
        await store.put("a/b/c", body(b"x"), TEXT)
    finally:
        os.umask(before)
    assert modes_below(root) == {"objects": 0o700, "incoming": 0o700, "a": 0o700, "b": 0o700, "c.object": 0o600}


async def test_another_store_on_the_same_folder_sees_everything(
    store: FolderObjects, root: Path, clock: MovedClock
) -> None:
    link = await store.put("a", body(b"x"), "image/png")
    other = FolderObjects(root, clock)
    assert await other.stat("a") == link
    assert await whole(other.read(link)) == b"x"
    with pytest.raises(Conflict):
        await other.put("a", body(b"y"), TEXT)


async def test_there_is_no_way_past_the_server_to_a_folder(store: FolderObjects) -> None:
    link = await store.put("a", body(b"x"), TEXT)
    assert await store.download_url(link, timedelta(minutes=1)) is None
    assert await store.upload_url(link, timedelta(minutes=1)) is None


async def test_deletes_leave_no_folders(store: FolderObjects, root: Path) -> None:
    for key in ("a/b/c/d", "a/x"):
        await store.put(key, body(b"x"), TEXT)
    await store.delete("a/b/c")
    assert [path.name for path in (root / "objects" / "a").iterdir()] == ["x.object"]
    await store.delete("a/x")
    assert list((root / "objects").iterdir()) == []


async def test_a_folder_that_vanishes_while_it_is_made_is_made_again(
    store: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, vanished = os.mkdir, list[str]()

    def vanish_once(path: Path, mode: int) -> None:
        if not vanished:
            vanished.append(str(path))
            raise FileExistsError(errno.EEXIST, "there when made, gone when looked at", str(path))
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", vanish_once)
    await store.put("a/b", body(b"x"), TEXT)
    assert vanished


async def test_a_content_type_has_a_limit(store: FolderObjects) -> None:
    await store.put("a", body(b"x"), "\0" * 255)
    assert (await store.stat("a")) is not None
    with pytest.raises(Invalid):
        await store.put("b", body(b"x"), "x" * 256)


async def test_files_are_read_and_written_off_the_loop(store: FolderObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    for name in ("open", "fsync", "link", "utime"):
        real = getattr(os, name)

        def watched(*args: Any, real: Any = real, **options: Any) -> Any:
            threads.add(threading.get_ident())
            return real(*args, **options)

        monkeypatch.setattr(os, name, watched)
    link = await store.put("a", body(b"x"), TEXT)
    await store.copy("a", "b")
    await whole(store.read(link))
    assert threads
    assert threading.get_ident() not in threads


# -- damage


@pytest.mark.parametrize("position", [-1, -9, -13, -20, -60])
async def test_a_damaged_footer_is_noticed(store: FolderObjects, root: Path, position: int) -> None:
    await store.put("a", body(b"content"), TEXT)
    flip(file_of(root, "a"), position)
    with pytest.raises(CorruptObject):
        await store.stat("a")


@pytest.mark.parametrize("kept", [0, 3, 7, 20, 60])
async def test_a_truncated_file_is_noticed(store: FolderObjects, root: Path, kept: int) -> None:
    link = await store.put("a", body(b"content"), TEXT)
    os.truncate(file_of(root, "a"), kept)
    with pytest.raises(CorruptObject):
        await store.stat("a")
    if kept < 7:
        with pytest.raises(CorruptObject):
            await whole(store.read(link))


async def test_bytes_cut_from_the_front_are_noticed(store: FolderObjects, root: Path) -> None:
    await store.put("a", body(b"content"), TEXT)
    path = file_of(root, "a")
    path.write_bytes(path.read_bytes()[1:])
    with pytest.raises(CorruptObject):
        await store.stat("a")


# -- crashes


PUT_WITHOUT_END = """
import asyncio, pathlib, sys
from penstock.model.clock import SystemClock
from penstock.objects.folder import FolderObjects

async def body():
    yield bytes(3 << 20)
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(FolderObjects(pathlib.Path(sys.argv[1]), SystemClock()).put("a/b", body(), "text/plain"))
"""


def kill_in_mid_put(root: Path, clock: MovedClock) -> None:
    with subprocess.Popen([sys.executable, "-c", PUT_WITHOUT_END, str(root)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        FolderObjects(root, clock)
        assert len(list((root / "incoming").iterdir())) == 1, "it lives: not to be swept"
        process.kill()
    assert len(list((root / "incoming").iterdir())) == 1


async def test_what_a_killed_process_left_is_swept_and_never_seen(root: Path, clock: MovedClock) -> None:
    kill_in_mid_put(root, clock)
    store = FolderObjects(root, clock)
    assert list((root / "incoming").iterdir()) == []
    assert await store.stat("a/b") is None
    await store.put("a/b", body(b"x"), TEXT)


async def test_a_crash_between_naming_and_tidying_keeps_the_object(root: Path, clock: MovedClock) -> None:
    store = FolderObjects(root, clock)
    link = await store.put("a", body(b"x"), TEXT)
    os.link(file_of(root, "a"), root / "incoming" / "left-over")
    again = FolderObjects(root, clock)
    assert list((root / "incoming").iterdir()) == []
    assert await whole(again.read(link)) == b"x"


async def test_a_put_under_way_is_not_swept(store: FolderObjects, root: Path, clock: MovedClock) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(2 * MIB)
        started.set()
        await go_on.wait()
        yield b"end"

    put = asyncio.ensure_future(store.put("a", slow(), TEXT))
    await started.wait()
    FolderObjects(root, clock)
    go_on.set()
    assert (await put).size == 2 * MIB + 3


def test_a_file_swept_before_it_was_locked_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.objects import folder

    real, swept = folder._locked, list[Path]()  # noqa: SLF001 - a race that cannot be had otherwise

    def sweep_first(file: Any) -> bool:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        return real(file)

    monkeypatch.setattr(folder, "_locked", sweep_first)
    upload = FolderUpload(tmp_path)
    upload.write(b"x")
    assert list(tmp_path.iterdir()) == [upload.path]
    assert upload.path not in swept
    upload.discard()


async def test_bytes_are_synced_before_the_name_and_the_name_before_the_answer(
    store: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    fsync, link = os.fsync, os.link

    def watched_fsync(descriptor: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        steps.append(f"sync {target.parent.name if target.parent.name == 'incoming' else target.name}")
        fsync(descriptor)

    def watched_link(*args: Any) -> None:
        steps.append("link")
        link(*args)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    await store.put("a/b/c", body(b"x"), TEXT)
    assert steps == ["sync incoming", "link", "sync b", "sync a", "sync objects"]


# -- a file system that refuses


def failing(name: str, code: int, monkeypatch: pytest.MonkeyPatch, times: int = 1000) -> None:
    real, left = getattr(os, name), [times]

    def fail(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            return real(*args, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("name", ["open", "fsync", "link", "utime"])
async def test_nothing_is_acknowledged_when_the_disk_refuses(
    store: FolderObjects, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    failing(name, code, monkeypatch)
    with pytest.raises(ObjectsUnavailable, match=os.strerror(code)):
        await store.put("a/b", body(b"x"), TEXT)
    monkeypatch.undo()
    assert await store.stat("a/b") is None
    assert (await store.put("a/b", body(b"x"), TEXT)).size == 1


async def test_a_name_that_could_not_be_synced_is_taken_back(
    store: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, list[int]()

    def fail_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_second)
    with pytest.raises(ObjectsUnavailable):
        await store.put("a", body(b"x"), TEXT)
    assert await store.stat("a") is None


async def test_a_full_disk_in_the_middle_leaves_nothing(tmp_path: Path, clock: MovedClock) -> None:
    """A real limit, on the size of files."""
    import resource

    store = FolderObjects(tmp_path, clock)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MIB, before[1]))
    try:
        with pytest.raises(ObjectsUnavailable):
            await store.put("a", body(*[bytes(MIB)] * 5), TEXT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await store.stat("a") is None
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path, clock: MovedClock) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObjectsUnavailable):
        FolderObjects(tmp_path / "file" / "data", clock)


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EXDEV])
async def test_what_cannot_be_linked_is_copied(
    store: FolderObjects, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    link = await store.put("a", body(b"x" * (2 * MIB + 5)), TEXT)
    failing("link", code, monkeypatch, times=1)
    copied = await store.copy("a", "b/c")
    assert (copied.key, copied.size, copied.digest) == ("b/c", link.size, link.digest)
    assert not file_of(root, "a").samefile(file_of(root, "b/c"))
    assert len(await whole(store.read(copied))) == link.size


async def test_a_copy_is_young_before_it_has_its_name(
    store: FolderObjects, root: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a sweep could find it between its naming and its ageing, and take it for old."""
    await store.put("a", body(b"x"), TEXT)
    clock.advance(timedelta(hours=2))
    real, ages = os.link, list[float]()

    def watched(source: Path, target: Path) -> None:
        ages.append(clock.now().timestamp() - source.stat().st_mtime)
        real(source, target)

    monkeypatch.setattr(os, "link", watched)
    await store.copy("a", "b")
    assert ages == [0]


async def test_a_copy_costs_no_bytes(store: FolderObjects, root: Path) -> None:
    await store.put("a", body(b"x"), TEXT)
    await store.copy("a", "b")
    assert file_of(root, "a").samefile(file_of(root, "b"))


# -- cancellation


async def test_a_cancelled_put_waits_for_its_thread(
    store: FolderObjects, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file closed under a thread that writes would lend its number to another file."""
    entered, leave = threading.Event(), threading.Event()
    real = os.fsync

    def held(descriptor: int) -> None:
        entered.set()
        assert leave.wait(10)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", held)
    put = asyncio.ensure_future(store.put("a", body(b"x"), TEXT))
    await asyncio.to_thread(entered.wait, 10)
    put.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not put.done()
    assert len(list((root / "incoming").iterdir())) == 1
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await put


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_a_put_cancelled_anywhere_leaves_a_whole_object_or_none(store: FolderObjects, turns: int) -> None:
    started = asyncio.Event()
    put = asyncio.ensure_future(store.put("a", stall(started) if turns % 2 else body(b"x" * MIB, b"y"), TEXT))
    for _ in range(turns):
        await asyncio.sleep(0)
    put.cancel()
    await asyncio.wait({put})
    link = await store.stat("a")
    if link is not None:
        assert len(await whole(store.read(link))) == MIB + 1
