"""So that nothing a worker starts outlives it, however it ends."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from penstock.client.environment import URL_VARIABLE
from penstock.config import is_setting, variable

PARENT = "PENSTOCK_PARENT"
"""Names the process that a worker drains with, however that process ends."""

ORPHANED = signal.SIGUSR2
"""What a worker gets when its parent has ended. It may come more than once, for each thread that the parent had, so it
must not be the signal of which a second one means haste; nor SIGHUP, which `nohup` switches off."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Looked up once: after a fork there must be no import and no lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_starter() -> None:
    """Have the kernel kill this process when the thread that started it ends. Survives an exec. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """The same, and at once if `parent` has already gone."""
    die_with_starter()
    if os.getppid() != parent:
        os._exit(1)


def drain_with_parent(parent: int) -> None:
    """Have the kernel send ORPHANED to this process when `parent` ends; at once if it has already gone. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, ORPHANED)
    if os.getppid() != parent:
        os.kill(os.getpid(), ORPHANED)


_one_adopts = threading.Lock()


@contextmanager
def adopting() -> Iterator[None]:
    """While this lasts, processes below this one whose parents end become its own children. Linux only.

    Not for longer than needed: whatever user code leaves behind would come here too, and nobody would reap it.
    """
    if _LIBC is None:
        raise OSError("this system knows no adoption of processes")
    with _one_adopts:
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0)


def kill_group(leader: int, number: signal.Signals) -> None:
    """Signal a process that leads a group, and what it started there. No error if it has gone."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return


def describe(status: int) -> str:
    """How a process ended, in words, from the return code that `subprocess` gives."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


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


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """For user code. Settings hold keys, and the addresses of store, broker and objects with their passwords."""
    return {name: value for name, value in environ.items() if not is_setting(name) and name != PARENT}


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The rest: what a worker is told."""
    return {name: value for name, value in environ.items() if is_setting(name)}


def for_import(environ: Mapping[str, str]) -> dict[str, str]:
    """For a process that imports the app before it belongs to a worker: it may ask at import where jobs go to."""
    url = environ.get(variable("worker.url")) or environ.get(URL_VARIABLE)
    return without_settings(environ) | ({URL_VARIABLE: url} if url else {})
