"""A process that this one started, however it did, and the news of its end."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from penstock.worker.mortality import kill_group

Exited = Callable[[int], None]


class Child(Protocol):
    """A child of this process that leads a group of its own: a `subprocess.Popen`, or a `ForkedChild`."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Wait for its end and reap it; the status, negative for a signal."""
        ...


class ForkedChild:
    """A child that a template forked and this process adopted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def when_ended(child: Child, loop: asyncio.AbstractEventLoop, exited: Exited) -> None:
    """Call `exited` on the loop, once, as soon as the child has ended; what it had started is ended too."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        _wait_in_thread(child, loop, exited)
        return

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        exited(_reap(child))

    loop.add_reader(descriptor, ended)


def _wait_in_thread(child: Child, loop: asyncio.AbstractEventLoop, exited: Exited) -> None:
    def wait() -> None:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        loop.call_soon_threadsafe(exited, _reap(child))

    threading.Thread(target=wait, name=f"wait-{child.pid}", daemon=True).start()


def _reap(child: Child) -> int:
    # While it is not reaped its number cannot belong to somebody else's group.
    kill_group(child.pid, signal.SIGKILL)
    return child.wait()
