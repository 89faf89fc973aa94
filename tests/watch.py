"""Waits for files and for processes: the kernel reports changes of a folder (inotify) and ends (pidfd); no polling."""

import asyncio
import ctypes
import os
import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
# Created, written, moved here, moved away, deleted.
_CHANGES = 0x100 | 0x2 | 0x80 | 0x40 | 0x200
_ENOUGH = 1 << 16


class FolderWatch:
    """Changes in one folder from now on. A file's own folder must be there; the file need not."""

    def __init__(self, folder: Path) -> None:
        self._queue = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._queue < 0 or _LIBC.inotify_add_watch(self._queue, os.fsencode(folder), _CHANGES) < 0:
            raise OSError(ctypes.get_errno(), "cannot be watched", str(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        os.close(self._queue)

    async def until(self, true: Callable[[], bool]) -> None:
        """Return once it is true, which a change in the folder makes it."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def note() -> None:
            os.read(self._queue, _ENOUGH)
            changed.set()

        loop.add_reader(self._queue, note)
        try:
            while not true():
                await changed.wait()
                changed.clear()
        finally:
            loop.remove_reader(self._queue)

    def wait(self, true: Callable[[], T | None], within: float) -> T:
        """The first true answer, asked for now and after each change in the folder, without an event loop."""
        deadline, changes = time.monotonic() + within, select.poll()
        changes.register(self._queue, select.POLLIN)
        while not (answer := true()):
            if not changes.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(f"not true within {within:g} s")
            os.read(self._queue, _ENOUGH)
        return answer


async def until_there(file: Path) -> None:
    """Return once the file is there."""
    with FolderWatch(file.parent) as folder:
        await folder.until(file.exists)


def wait_in(folder: Path, true: Callable[[], T | None], within: float) -> T:
    """The first true answer about what is in the folder, without an event loop."""
    with FolderWatch(folder) as watch:
        return watch.wait(true, within)


async def until_ended(pids: Iterable[int]) -> None:
    """Return once each of these processes has ended, its own child or not; a zombie has ended."""
    for pid in pids:
        await until_one_ended([pid])


async def until_one_ended(pids: Iterable[int]) -> None:
    """Return once one of these processes has ended."""
    loop, ended, handles = asyncio.get_running_loop(), asyncio.Event(), list[int]()
    try:
        for pid in pids:
            handles.append(os.pidfd_open(pid))
            loop.add_reader(handles[-1], ended.set)
        await ended.wait()
    except ProcessLookupError:
        return
    finally:
        for handle in handles:
            loop.remove_reader(handle)
            os.close(handle)


def wait_for_ends(pids: Iterable[int], within: float) -> None:
    """Return once each of these processes has ended, without an event loop; a zombie has ended."""
    deadline = time.monotonic() + within
    for pid in pids:
        with suppress(ProcessLookupError):
            _wait_for_end(pid, deadline)


def _wait_for_end(pid: int, deadline: float) -> None:
    ends, handle = select.poll(), os.pidfd_open(pid)
    try:
        ends.register(handle, select.POLLIN)
        if not ends.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError(f"process {pid} runs on")
    finally:
        os.close(handle)
