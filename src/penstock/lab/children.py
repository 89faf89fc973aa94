"""Servers and workers that a command starts for itself: processes of this program that end with the command."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import msgspec

from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import PenstockError

READY_SECONDS = 30.0
GRACE_SECONDS = 8.0
_LOG_TAIL = 600


class ChildFailed(PenstockError):
    """A server or worker started by this command failed; the message shows the end of its log."""

    code = "child_failed"


class Ready(msgspec.Struct, frozen=True):
    """What `penstock up --json` prints once it is ready."""

    url: str
    data: str


class Children:
    """Processes of this program, in a folder of their own: no settings of the user reach them."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        # A killed worker cannot remove its temporary files: they are put where the folder's removal removes them.
        self._environ = clean_environ(os.environ) | {"TMPDIR": str(folder)} | dict(settings)

    @contextlib.contextmanager
    def run(self, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `penstock …` while the body runs; drain it afterwards, and kill it if that takes too long."""
        process = self.start(name, *words)
        try:
            yield process
        finally:
            end(process)

    @contextlib.contextmanager
    def server(self, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """Run `penstock up …` on a free port; gives the process and its URL once it is ready."""
        with self.run("server", "up", *words, "--port", "0", "--json") as process:
            yield process, self._wait_until_ready(process).url

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a process that the caller has to end. In a session of its own, Ctrl-C does not reach it directly."""
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=self.folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if words[0] == "up" else log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_until_ready(self, process: subprocess.Popen[bytes], clock: Clock | None = None) -> Ready:
        line = read_first_line(process, READY_SECONDS, clock or SystemClock())
        if not line:
            tail = self.log("server").read_text(errors="replace")[-_LOG_TAIL:].strip()
            raise ChildFailed(f"the server did not get ready: {tail or 'it said nothing'}")
        return msgspec.json.decode(line, type=Ready)


def read_first_line(process: subprocess.Popen[bytes], patience: float, clock: Clock) -> bytes:
    """Read the first line a process prints; empty if it ends or takes too long."""
    if process.stdout is None:
        raise ValueError("the process has no pipe for its output")
    deadline = clock.monotonic() + patience
    while (left := deadline - clock.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            return process.stdout.readline()
    return b""


def end(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """Drain a process and wait for it; kill it, with what it started, if it takes too long."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the user's own Penstock settings."""
    return {name: value for name, value in environ.items() if not name.startswith("PENSTOCK_")}


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """The first SIGINT or SIGTERM unwinds the body; later ones are ignored until its cleanup is done."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, unwind) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
