"""Child processes: none outlives the process that it belongs to, however that ends."""

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
"""The variable that holds the pid of a worker's parent: the worker drains when that process ends."""

ORPHANED = signal.SIGUSR2
"""The signal that a worker gets when its parent has ended. It may arrive several times, once per thread of the parent,
so it must not be SIGINT or SIGTERM, of which a second one means hurry; nor SIGHUP, which `nohup` ignores."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Looked up once: after a fork there must be no import and no lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_starter() -> None:
    """Have the kernel kill this process when the thread that started it ends. Survives an exec. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """As `die_with_starter`, and die at once if `parent` has already ended."""
    die_with_starter()
    if os.getppid() != parent:
        os._exit(1)


def drain_with_parent(parent: int) -> None:
    """Have the kernel send ORPHANED to this process when `parent` ends; at once if it has already ended. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, ORPHANED)
    if os.getppid() != parent:
        os.kill(os.getpid(), ORPHANED)


_one_adopts = threading.Lock()


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """While the body runs, orphaned descendants become children of this process. Linux only.

    Keep it short: orphans of user code would become children too, and would not be reaped.
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
    """Signal a process that leads a group, and what it started there. No error if it has ended."""
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
        """Wait for its end and reap it; the exit status, negative for a signal."""
        ...


class ForkedChild:
    """A child that a prefork process forked and this process adopted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def when_ended(child: Child, loop: asyncio.AbstractEventLoop, exited: Exited) -> None:
    """Call `exited` on the loop once the child has ended; the rest of its process group is killed."""
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
    # Until it is reaped, its pid cannot name another process group.
    kill_group(child.pid, signal.SIGKILL)
    return child.wait()


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for user code: without settings, which hold keys and URLs with passwords."""
    return {name: value for name, value in environ.items() if not is_setting(name) and name != PARENT}


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings in an environment, which a worker is given."""
    return {name: value for name, value in environ.items() if is_setting(name)}


def for_import(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for importing the app before there is a worker: the app may read the server's URL."""
    url = environ.get(variable("worker.url")) or environ.get(URL_VARIABLE)
    return without_settings(environ) | ({URL_VARIABLE: url} if url else {})
