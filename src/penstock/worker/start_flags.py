"""Memory shared by agent and executor: which jobs have started, and which were taken back before they did.

The agent can read it while the executor is stuck and sends no frames, even if an extension holds Python's global lock.
Each place has two bytes, each written by one side only. The executor sets *started*, then reads *taken*; the agent sets
*taken*, waits, then reads *started*. In any order, at most one of them proceeds.
"""

import mmap
import os
import tempfile


class StartFlags:
    """The flags, on either side."""

    def __init__(self, file: int, places: int) -> None:
        self._page = mmap.mmap(file, 2 * places)
        self._places = places

    def begin(self, place: int) -> bool:
        """Executor: mark the job as started; False if it was taken back and must not run."""
        self._page[place] = 1
        return not self._page[self._places + place]

    def take_back(self, place: int) -> None:
        """Agent: prevent the start. Only reading `started` some time later tells which side was first."""
        self._page[self._places + place] = 1

    def started(self, place: int) -> bool:
        return bool(self._page[place])

    def clear(self, place: int) -> None:
        """Agent: free the place for another job, once the end of its last one was reported."""
        self._page[place] = 0
        self._page[self._places + place] = 0

    def close(self) -> None:
        self._page.close()


def shared_file(places: int) -> int:
    """An anonymous file that holds the flags; the caller closes it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("penstock-start-flags")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.ftruncate(file, 2 * places)
    return file
