"""Requests to a prefork process and its answers: four bytes of length, one struct in msgpack, and descriptors."""

import socket
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from penstock.worker.channel import HEADER
from penstock.worker.protocol import Loaded

MOST_DESCRIPTORS = 2


class Message(Struct, frozen=True, tag_field="kind"):
    """One request or answer; its tag names the kind."""


class ForkWorker(Message, frozen=True, tag=0):
    """Fork a worker; `environment` is added to the prefork process's own."""

    environment: Mapping[str, str]


class ForkExecutor(Message, frozen=True, tag=1):
    """Fork an executor. Its end of the channel and its start flags come as descriptors."""

    places: int


Request = ForkWorker | ForkExecutor


class Imported(Message, frozen=True, tag=10):
    """The app is imported. `unsafe` is why this process cannot be forked; empty if it can."""

    loaded: Loaded
    unsafe: str = ""


class NotImported(Message, frozen=True, tag=11):
    """The app cannot be imported; the process ends."""

    message: str
    traceback: str


class Forked(Message, frozen=True, tag=12):
    """The new process runs and is a child of the asking one."""

    pid: int


class NotForked(Message, frozen=True, tag=13):
    reason: str


Answer = Imported | NotImported | Forked | NotForked

REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def send(end: socket.socket, message: Request | Answer, descriptors: Sequence[int] = ()) -> None:
    """Send one message with duplicates of the descriptors."""
    body = msgspec.msgpack.encode(message)
    socket.send_fds(end, [len(body).to_bytes(HEADER, "big")], list(descriptors))
    end.sendall(body)


def receive(end: socket.socket) -> tuple[bytes, list[int]]:
    """The next message, undecoded, and the descriptors beside it. EOFError when the other side is gone."""
    header, descriptors, _, _ = socket.recv_fds(end, HEADER, MOST_DESCRIPTORS)
    if not header:
        raise EOFError("the other side is gone")
    header += _exactly(end, HEADER - len(header))
    return _exactly(end, int.from_bytes(header, "big")), descriptors


def _exactly(end: socket.socket, count: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        if not (piece := end.recv(count - len(pieces))):
            raise EOFError("the other side is gone")
        pieces += piece
    return bytes(pieces)
