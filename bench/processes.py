"""Child processes that are certain to end: each leads its own session and is ended, with all it started, by pid."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

GRACE_SECONDS = 3.0
_MARK = "BENCH_TREE"


class StepFailed(Exception):
    """A command of a peer or a server did not do its work; the message says which and shows its last words."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group a child runs as."""

    uid: int
    gid: int


@contextlib.contextmanager
def child(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path | None = None,
    account: Account | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """A running process. Afterwards it is gone, and so is every descendant, even one in a session of its own."""
    mark = uuid.uuid4().hex
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**env, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        try:
            yield process
        finally:
            _end(process, stop_signal)
    finally:
        _end_marked(mark)


def output_of(command: Sequence[str], *, env: Mapping[str, str], log: Path, timeout: float, cwd: Path) -> str:
    """What the command printed. Raises StepFailed if it fails or is not done in time; then it has been ended."""
    start = log.stat().st_size if log.exists() else 0
    with child(command, env=env, log=log, cwd=cwd) as process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            raise StepFailed(f"{_shown(command)}: not done in {timeout:.0f} s") from late
    printed = log.read_bytes()[start:].decode(errors="replace")
    if code:
        last_words = (printed.strip().splitlines() or ["it printed nothing"])[-1][:200]
        raise StepFailed(f"{_shown(command)}: exit code {code}: {last_words} (see {log})")
    return printed


def stop_on_signals() -> None:
    """The first Ctrl-C or SIGTERM unwinds the program; further ones are ignored, so that cleaning up is not cut."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)


def _unwind(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def _end(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_marked(mark: str) -> None:
    """Also waits: a killed process may write its last record a moment later, and the next step must not see it."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (pids := _marked(mark)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _marked(mark: str) -> list[int]:
    """Pids whose environment carries the mark; none where there is no /proc."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def _shown(command: Sequence[str]) -> str:
    return " ".join(Path(word).name if word.startswith("/") else word for word in command)
