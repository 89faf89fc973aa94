"""The main function of an executor process, started or forked."""

import asyncio
import signal
import socket
import sys

import msgspec

from penstock.app import Penstock
from penstock.client.environment import belong_to
from penstock.model.clock import SystemClock
from penstock.worker.channel import HEADER
from penstock.worker.executor.executor import Executor
from penstock.worker.executor.loader import UNLOADABLE, load_or_explain
from penstock.worker.processes import die_with_parent
from penstock.worker.protocol import Load, LoadFailed
from penstock.worker.start_flags import StartFlags


def tie_to(agent: int) -> None:
    """Die with the agent, and ignore termination signals: the agent alone decides when an executor ends.

    Not with SIG_IGN, which the child processes of handlers would inherit.
    """
    die_with_parent(agent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def execute(end: int, flags: int, places: int, *, loaded: Penstock | None = None) -> None:
    """Import the app unless it is `loaded`, then run jobs until the agent sends Leave."""
    channel = socket.socket(fileno=end)
    told = _first(channel)
    belong_to(told.url, told.key)
    app = loaded if loaded is not None else _load_or_exit(told.app, channel)
    executor = Executor(app, channel, StartFlags(flags, places), SystemClock(), told)
    _runner().run(executor.serve())


def _first(channel: socket.socket) -> Load:
    length = int.from_bytes(channel.recv(HEADER, socket.MSG_WAITALL), "big")
    [first] = msgspec.msgpack.decode(channel.recv(length, socket.MSG_WAITALL), type=list[Load])
    return first


def _load_or_exit(reference: str, channel: socket.socket) -> Penstock:
    app = load_or_explain(reference)
    if isinstance(app, LoadFailed):
        body = msgspec.msgpack.encode([app])
        channel.sendall(len(body).to_bytes(HEADER, "big") + body)
        sys.exit(UNLOADABLE)
    return app


def _runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
