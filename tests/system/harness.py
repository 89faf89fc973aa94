"""Real processes for tests: servers and workers started as a user starts them, and ways to wait that have deadlines."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

import psutil

from servers.launch import die_with_parent
from tests.watch import wait_in

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.system.handlers:app"
WITHIN = 60.0
"""Seconds any one wait may take. Only a broken system ever gets there."""


class Process:
    """One `penstock` command as a process of its own session; its stderr is kept and can be waited on.

    To be started by a thread that lives as long: the kernel kills it when that thread ends, as if the run were killed.
    """

    def __init__(self, *arguments: str, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._fresh: Queue[str] = Queue()
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=ROOT,
            env={**os.environ, "HANDLERS_FOLDER": str(folder), "PYTHONUNBUFFERED": "1", **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()

    def _collect(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line)
            self._fresh.put(line)

    def first_line(self) -> str:
        """What the command prints first."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, f"it printed nothing and said: {''.join(self.lines)}"
        return line

    def says(self, *words: str) -> str:
        """Wait for a line of its log that holds one of the words; lines are looked at once."""
        deadline = time.monotonic() + WITHIN
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._fresh.get(timeout=left)
            except Empty:
                break
            if any(word in line for word in words):
                return line
        raise AssertionError(f"it never said {words}, only: {''.join(self.lines)}")

    def tree(self) -> list[psutil.Process]:
        """This process and all below it."""
        top = psutil.Process(self.popen.pid)
        return [top, *top.children(recursive=True)]

    def signal_all(self, number: signal.Signals) -> None:
        """This process first, so that it starts no other meanwhile; one that has just ended needs no signal."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """kill -9 of this one process; what it started must notice by itself."""
        self.popen.kill()
        self.popen.wait(WITHIN)

    def stop(self) -> int:
        """Ask to stop and wait; its exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(WITHIN)

    def end(self) -> None:
        """Whatever state it is in, nothing of it is left. May be repeated."""
        try:
            remains = self.tree()
        except psutil.NoSuchProcess:
            remains = []
        for process in remains:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait(WITHIN)
        self._collector.join(WITHIN)
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()


class Server(Process):
    """`penstock up`, ready to be asked."""

    def __init__(
        self,
        data: Path,
        *flags: str,
        port: int = 0,
        app: str | None = APP,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        named = [app] if app else []
        super().__init__(
            "up",
            *named,
            "--json",
            "--port",
            str(port),
            "--data",
            str(data),
            *flags,
            folder=data.parent,
            environ=environ,
        )
        self.url: str = json.loads(self.first_line())["url"]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class WorkerProcess(Process):
    """`penstock worker`, joined."""

    def __init__(self, url: str, folder: Path, *flags: str) -> None:
        super().__init__("worker", APP, "--url", url, *flags, folder=folder)
        self.says("ready")


@contextmanager
def ending(*processes: Process) -> Iterator[None]:
    """End the processes when the body is through, however it went."""
    try:
        yield
    finally:
        for process in processes:
            process.end()


def eventually(what: str, check: Callable[[], T | None], within: float = WITHIN) -> T:
    """The first true answer of `check`, asked every 20 ms until a deadline.

    Only for what another process answers when it is asked and reports in no other way: lists and counts of the API,
    health, metrics. For a job's end there is `Client.wait`, for a log line `Process.says`, for what handlers wrote
    `wait_for_ledger`, for the end of a process `tests.watch.wait_for_ends`.
    """
    pause = threading.Event()
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if answer := check():
            return answer
        pause.wait(0.02)
    raise AssertionError(f"{what}: not within {within} s")


def wait_for_ledger(folder: Path, check: Callable[[], T | None]) -> T:
    """The first true answer of `check`, asked whenever a handler has written to the ledger."""
    return wait_in(folder, check, WITHIN)


def ledger(folder: Path) -> Sequence[dict[str, Any]]:
    """What handlers wrote outside the system, in order."""
    file = folder / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
