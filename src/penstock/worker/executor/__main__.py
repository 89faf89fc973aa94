"""The executor process: load the app, then run what the agent sends until it says otherwise or dies."""

import asyncio
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import Any

import msgspec

from penstock.app import Penstock
from penstock.model.timing import SystemClock
from penstock.worker.channel import HEADER
from penstock.worker.executor import capture
from penstock.worker.executor.executor import Executor
from penstock.worker.frames import Load, LoadFailed
from penstock.worker.marks import Marks
from penstock.worker.mortality import die_with

UNLOADABLE = 2
"""The exit status of an executor whose app cannot be imported."""


def main() -> None:
    end, marks, places, agent = map(int, sys.argv[1:5])
    die_with(agent)
    _ignore_signals()
    capture.install()
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - a string is what sys.path holds
    channel = socket.socket(fileno=end)
    told = _first(channel)
    app = _load_or_exit(told.app, channel)
    executor = Executor(app, channel, Marks(marks, places), SystemClock(), told.log_bytes)
    _runner().run(executor.serve())


def _ignore_signals() -> None:
    """The agent alone decides when an executor ends. Not SIG_IGN, which handlers' own child processes would inherit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _first(channel: socket.socket) -> Load:
    length = int.from_bytes(channel.recv(HEADER, socket.MSG_WAITALL), "big")
    [first] = msgspec.msgpack.decode(channel.recv(length, socket.MSG_WAITALL), type=list[Load])
    return first


def _load_or_exit(reference: str, channel: socket.socket) -> Penstock:
    try:
        return load(reference)
    except BaseException as error:  # noqa: BLE001 - importing runs user code, which may raise anything
        body = msgspec.msgpack.encode([LoadFailed(f"{type(error).__name__}: {error}", _where(error))])
        channel.sendall(len(body).to_bytes(HEADER, "big") + body)
        sys.exit(UNLOADABLE)


def _where(error: BaseException) -> str:
    """The user's own part of the traceback; nothing if the app was not found at all."""
    machinery = (__file__, "<frozen importlib", importlib.__file__ or "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(machinery)]
    if not frames and not isinstance(error, SyntaxError):
        return ""
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])


def load(reference: str) -> Penstock:
    """The app that `module:name` refers to; name is `app` unless given."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in (name or "app").split("."):
        found = getattr(found, part)
    if not isinstance(found, Penstock):
        raise TypeError(f"{reference} is a {type(found).__name__}, not a penstock.Penstock")
    return found


def _runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


if __name__ == "__main__":
    main()
