"""A page of memory that agent and executor share: which jobs have started, and which were taken back before they did.

The agent can read it while the executor is stuck, even with Python's global lock held by an extension, when no frame
can come out. Per place there are two bytes, each written by one side only. The executor marks *started* and then looks
at *taken*; the agent marks *taken*, waits, and then looks at *started*. Whatever the order, they never both go on.
"""

import mmap
import os
import tempfile


class StartFlags:
    """The page, on either side."""

    def __init__(self, file: int, places: int) -> None:
        self._page = mmap.mmap(file, 2 * places)
        self._places = places

    def begin(self, place: int) -> bool:
        """Executor: mark the job as started; False when it was taken back, and must not run."""
        self._page[place] = 1
        return not self._page[self._places + place]

    def take_back(self, place: int) -> None:
        """Agent: forbid the start. Only a look at `started` some time later tells who was first."""
        self._page[self._places + place] = 1

    def started(self, place: int) -> bool:
        return bool(self._page[place])

    def clear(self, place: int) -> None:
        """Agent: make the place ready for another job, once the end of its last one was reported."""
        self._page[place] = 0
        self._page[self._places + place] = 0

    def close(self) -> None:
        self._page.close()


def shared_file(places: int) -> int:
    """A nameless file that holds the page; the caller closes it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("penstock-marks")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.ftruncate(file, 2 * places)
    return file
