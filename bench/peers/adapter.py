"""What the bench asks of a system. Systems without an event loop simply block in their calls: nothing else runs."""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path

from peers.job import Payload

BIN = Path(sys.executable).parent


class Unsupported(Exception):
    """The system has no such call."""


class Adapter(ABC):
    """One system. Producer calls return when the system itself says that the job is accepted."""

    @abstractmethod
    async def reset(self) -> None:
        """Afterwards the store is ready and holds no job."""

    @abstractmethod
    async def put(self, job: Payload) -> None:
        """Enqueue one job, due at once."""

    @abstractmethod
    def worker(self) -> None:
        """Run jobs until the process is ended."""

    async def open(self) -> None:  # noqa: B027  most need no connection
        """Connect, so that the first measured call does not pay for it."""

    async def close(self) -> None:  # noqa: B027
        """Undo `open`."""

    async def put_many(self, jobs: list[Payload]) -> None:
        """Enqueue many with the system's bulk call."""
        raise Unsupported("no bulk call")

    async def put_from(self, callers: int, seconds: float) -> int:
        """Enqueue from so many callers at once, each one job after the other, for so long; how many."""
        raise Unsupported("not measured")

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        """Enqueue many, due after `delay`, by the fastest call there is."""
        raise Unsupported("no delayed jobs in the broker itself")

    def server(self) -> None:
        """Serve until the process is ended."""
        raise SystemExit("this system has no server of its own")


def become(program: str, *arguments: str) -> None:
    """Replace this process by a program of the same virtualenv."""
    path = str(BIN / program)
    os.execv(path, [path, *arguments])  # noqa: S606


def run_copies(count: int, *command: str) -> None:
    """Run the command `count` times side by side until all have ended."""
    copies = [subprocess.Popen(command) for _ in range(count)]
    for copy in copies:
        copy.wait()
