"""Launches the workers of a local fleet: forked from a prefork process of their app, or started anew."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Self

from penstock.model.errors import FleetUnavailable, InvalidSetting
from penstock.worker.prefork.client import PreforkClient, PreforkLost
from penstock.worker.prefork.protocol import Imported, NotImported
from penstock.worker.processes import PARENT, Child, ForkedChild, describe, for_import, settings_of, when_ended
from penstock.worker.protocol import Loaded

MODULE = "penstock.cli.prefork"
IMPORT_SECONDS = 120.0
LEAVE_SECONDS = 5.0


class PreforkProcess:
    """A prefork process that has imported its app. `unsafe` is why it cannot be forked; empty if it can."""

    def __init__(self, process: "subprocess.Popen[bytes]", client: PreforkClient, imported: Imported) -> None:
        self._process = process
        self.client = client
        self.loaded: Loaded = imported.loaded
        self.unsafe = imported.unsafe

    @classmethod
    async def start(cls, app: str, environment: Mapping[str, str]) -> Self:
        """Start a process that imports the app. InvalidSetting if the import fails."""
        ours, theirs = socket.socketpair()
        process = _spawn_prefork(app, theirs, environment)
        client = PreforkClient(ours)
        try:
            said = await asyncio.to_thread(client.imported, IMPORT_SECONDS)
        except PreforkLost as error:
            how = "is stuck" if process.poll() is None else describe(process.returncode)
            await _end(process, client)
            raise InvalidSetting(f"{app}: the process that imports it {how}; {error}") from None
        except BaseException:
            await _end(process, client)
            raise
        if isinstance(said, NotImported):
            await _end(process, client)
            raise InvalidSetting(f"{app} cannot be imported: {said.message}\n{said.traceback}".rstrip())
        return cls(process, client, said)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def close(self) -> None:
        """End the process. Its forks go on."""
        await _end(self._process, self.client)


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


async def _end(process: "subprocess.Popen[bytes]", client: PreforkClient) -> None:
    client.close()
    await asyncio.to_thread(_await_end, process)


def _await_end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


logger = logging.getLogger("penstock.worker")
TRIES = 2
"""A lost prefork process is replaced, once for each worker that is started."""

Key = tuple[str, frozenset[tuple[str, str]]]


class Launched:
    """A worker process. `ended` returns its exit status, negative for a signal."""

    def __init__(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        self.pid = child.pid
        self.ended: asyncio.Future[int] = loop.create_future()
        when_ended(child, loop, self.ended.set_result)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if not self.ended.done():
            os.kill(self.pid, number)


class Launcher:
    """Starts workers of this machine as children of this process; they drain when it ends, however it does.

    There is one prefork process for each app and `environment`, which the app may read during its import. It starts
    with the first worker, or earlier with `load`, and does not see later changes on disk. Without `prefork`, and if
    forking is not safe, every worker and executor imports the app itself.
    """

    def __init__(self, *, prefork: bool = True) -> None:
        self._forks = prefork
        self._preforks: dict[Key, asyncio.Task[PreforkProcess]] = {}
        self._told: set[str] = set()

    async def load(self, app: str, environment: Mapping[str, str]) -> Loaded:
        """Import the app for the first worker; returns what it declares. InvalidSetting if the import fails."""
        key = _key(app, environment)
        loaded = (await self._prefork(key)).loaded
        if not self._forks:
            await self._forget(key)
        return loaded

    async def launch(self, app: str, environment: Mapping[str, str], own: Mapping[str, str]) -> Launched:
        """Start a worker with both environments. During the import in a prefork process only the first, without
        settings, is set.

        InvalidSetting: the app cannot be used. FleetUnavailable: there is no room for another process now.
        """
        own = {**own, PARENT: str(os.getpid())}
        told = {**settings_of({**os.environ, **environment}), **own}
        pid = await self._fork(_key(app, environment), told) if self._forks else None
        if pid is not None:
            return Launched(ForkedChild(pid))
        try:
            return Launched(_spawn(app, {**os.environ, **environment, **own}))
        except OSError as error:
            raise FleetUnavailable(f"a worker process cannot be started: {error}") from None

    async def close(self) -> None:
        """End the prefork processes. Running workers go on."""
        await asyncio.gather(*(self._forget(key) for key in tuple(self._preforks)))

    async def _fork(self, key: Key, own: Mapping[str, str]) -> int | None:
        """Fork a worker; None if the app is not safe to fork."""
        for left in reversed(range(TRIES)):
            process = await self._prefork(key)
            if process.unsafe:
                self._tell_once(key[0], process.unsafe)
                return None
            try:
                return await asyncio.to_thread(process.client.fork_worker, own)
            except PreforkLost as error:
                await self._forget(key)
                if not left:
                    raise FleetUnavailable(f"no worker could be forked for {key[0]}: {error}") from None
        return None

    async def _prefork(self, key: Key) -> PreforkProcess:
        """The prefork process of this app, started if there is none. Its start goes on if the caller is cancelled."""
        task = self._preforks.get(key)
        if task is None:
            task = self._preforks[key] = asyncio.ensure_future(PreforkProcess.start(key[0], dict(key[1])))
        try:
            return await asyncio.shield(task)
        except Exception:
            # The next call tries again: the app may have been fixed.
            if self._preforks.get(key) is task:
                del self._preforks[key]
            raise

    async def _forget(self, key: Key) -> None:
        task = self._preforks.pop(key, None)
        if task is None:
            return
        task.cancel()
        [started] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(started, PreforkProcess):
            await started.close()

    def _tell_once(self, app: str, unsafe: str) -> None:
        if app not in self._told:
            self._told.add(app)
            logger.warning("workers for %s start without a template, more slowly: %s", app, unsafe)


def _key(app: str, environment: Mapping[str, str]) -> Key:
    return app, frozenset(environment.items())


def _spawn(app: str, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # A new session: Ctrl-C reaches only the owner, which then drains its workers.
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "worker", app],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
        start_new_session=True,
    )
