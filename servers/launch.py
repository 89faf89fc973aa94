"""A server process: where its program is, how it is started, asked, ended and started again."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

READY_SECONDS = 60.0
_PAUSE = threading.Event()
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Missing(Exception):
    """The program of a server is not installed; the message says how to get it."""


class Launched:
    """One server on a port that it keeps over restarts.

    Subclasses give `command`, and `answers` where an open port is not enough.
    """

    name = "server"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused: list[psutil.Process] = []

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environ(self) -> Mapping[str, str]:
        return os.environ

    def account(self) -> pwd.struct_passwd | None:
        """The account to run under; None keeps this one."""
        return None

    def answers(self) -> bool:
        return accepts(self.port)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Return once it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        account = self.account()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=dict(self.environ()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=die_with_parent,
            )
        wait_until(self._settled, f"{self.name} did not answer; see {self.log}")
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}: {self.log.read_text()[-2000:]}")
        return self

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def stop(self) -> None:
        """Ask it to end and wait; one that is paused hears nothing and is killed. May be repeated."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """kill -9, of all its processes."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP, as if the machine had frozen: connections stay open and nothing is answered."""
        parent = psutil.Process(self.pid)
        # First, so that it starts no more. Not by group: PostgreSQL's sessions are groups of their own.
        parent.suspend()
        self._paused = [parent, *parent.children(recursive=True)]
        self._signal_paused(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_paused(signal.SIGCONT)
        self._paused = []

    def _signal_paused(self, number: signal.Signals) -> None:
        for process in self._paused:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _settled(self) -> bool:
        return self._running().poll() is not None or self.answers()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        self._signal_paused(signal.SIGKILL)
        process, self._process, self._paused = self._process, None, []
        if process is None or process.poll() is not None:
            return
        if number is signal.SIGKILL:
            _kill_with_children(process.pid)
        else:
            process.send_signal(number)
        try:
            process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        return self if self.alive else self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self.stop()


def _kill_with_children(pid: int) -> None:
    """Kill a process and all below it, and wait for those: what they hold (ports, shared memory) is free then.

    Not by group alone: PostgreSQL's sessions are groups of their own.
    """
    children = psutil.Process(pid).children(recursive=True)
    os.killpg(pid, signal.SIGKILL)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, READY_SECONDS)


def die_with_parent() -> None:
    """So that no server outlives a test run that was killed. The last thing before the program starts."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def in_wheel(package: str, ending: str) -> Path:
    """A program that a wheel brings; Missing without the wheel."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (program := Path(place) / ending).exists():
            return program
    raise Missing(f"no {ending} of {package}: run `make setup`")


def on_path(program: str, package: str) -> str:
    """A program of Debian's, which are not always on the PATH of ordinary users."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        raise Missing(f"{program} is not installed: run `make servers` as root, or apt-get install {package}")
    return found


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def unprivileged() -> pwd.struct_passwd | None:
    """The user that runs servers which refuse to run as root; None where this process is not root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        _PAUSE.wait(0.02)
