"""So that nothing a worker starts outlives it, however it ends."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
