"""A template process, as its owner starts and ends it."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Self

from penstock.model.errors import InvalidSetting
from penstock.worker.environment import for_import
from penstock.worker.frames import Loaded
from penstock.worker.mortality import describe
from penstock.worker.template.asking import PreforkClient, PreforkLost
from penstock.worker.template.frames import Imported, NotImported

MODULE = "penstock.cli.template"
IMPORT_SECONDS = 120.0
LEAVE_SECONDS = 5.0


class PreforkProcess:
    """A template that has imported its app. `unsafe` says why nothing can be forked from it; empty: it can."""

    def __init__(self, process: "subprocess.Popen[bytes]", template: PreforkClient, imported: Imported) -> None:
        self._process = process
        self.template = template
        self.loaded: Loaded = imported.loaded
        self.unsafe = imported.unsafe

    @classmethod
    async def start(cls, app: str, environment: Mapping[str, str]) -> Self:
        """Import the app in a process of its own. InvalidSetting if that cannot be done."""
        ours, theirs = socket.socketpair()
        process = _spawn_prefork(app, theirs, environment)
        template = PreforkClient(ours)
        try:
            said = await asyncio.to_thread(template.imported, IMPORT_SECONDS)
        except PreforkLost as error:
            how = "is stuck" if process.poll() is None else describe(process.returncode)
            await _end(process, template)
            raise InvalidSetting(f"{app}: the process that imports it {how}; {error}") from None
        except BaseException:
            await _end(process, template)
            raise
        if isinstance(said, NotImported):
            await _end(process, template)
            raise InvalidSetting(f"{app} cannot be imported: {said.message}\n{said.traceback}".rstrip())
        return cls(process, template, said)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def close(self) -> None:
        """Let it end, and see to it that it does. What was forked from it goes on."""
        await _end(self._process, self.template)


def _spawn_prefork(app: str, end: socket.socket, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with end:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, str(end.fileno()), str(os.getpid()), app],
            env=for_import({**os.environ, **environment}),
            pass_fds=(end.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
            start_new_session=True,
        )


async def _end(process: "subprocess.Popen[bytes]", template: PreforkClient) -> None:
    template.close()
    await asyncio.to_thread(_await_end, process)


def _await_end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
