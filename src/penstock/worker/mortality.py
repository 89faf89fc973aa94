"""So that nothing a worker starts outlives it, however it ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

# Looked up once: after a fork there must be no import and no lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. Survives an exec. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with(parent: int) -> None:
    """The same, and at once if `parent` has already gone."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def stop_with(parent: int) -> None:
    """Have the kernel ask this process to stop when `parent` ends; at once if it has already gone. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


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
