"""What a template is asked and answers: four bytes of length and one of these in msgpack, with descriptors."""

import socket
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from penstock.worker.channel import HEADER
from penstock.worker.protocol import Loaded

MOST_DESCRIPTORS = 2


class Message(Struct, frozen=True, tag_field="kind"):
    """One thing asked or answered; its tag tells which."""


class ForkWorker(Message, frozen=True, tag=0):
    """Fork a worker; `environment` is what it has beside the template's own."""

    environment: Mapping[str, str]


class ForkExecutor(Message, frozen=True, tag=1):
    """Fork an executor for the asker; beside it come its end of the channel and the page of marks."""

    places: int


Request = ForkWorker | ForkExecutor


class Imported(Message, frozen=True, tag=10):
    """The app is imported. `unsafe` says why nothing can be forked from here, and is empty where it can."""

    loaded: Loaded
    unsafe: str = ""


class NotImported(Message, frozen=True, tag=11):
    """The app cannot be imported; the template ends."""

    message: str
    traceback: str


class Forked(Message, frozen=True, tag=12):
    """The process is there, and a child of the asker."""

    pid: int


class NotForked(Message, frozen=True, tag=13):
    reason: str


Answer = Imported | NotImported | Forked | NotForked

REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def send(end: socket.socket, message: Request | Answer, descriptors: Sequence[int] = ()) -> None:
    """Say one thing; what is behind the descriptors is the other side's too afterwards."""
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
