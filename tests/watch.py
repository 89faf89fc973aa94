"""Waiting for files: the kernel tells when something in a folder has changed (inotify), so that no test polls."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

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


async def until_there(file: Path) -> None:
    """Return once the file is there."""
    with FolderWatch(file.parent) as folder:
        await folder.until(file.exists)
