"""One end of the socketpair between agent and executor: frames in, frames out, in order."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

HEADER = 4
READ_BYTES = 256 * 1024
MOST_BYTES = 512 * 1024 * 1024
"""The longest body. Four printable characters read as a length exceed it, so stray text is detected."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

In = TypeVar("In")
Out = TypeVar("Out")


class Garbled(Exception):
    """Received data is not a frame; nothing after it can be read either."""


class Splitter:
    """Splits a byte stream into the bodies of its frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = HEADER

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._rest:
            # In place, because a long body arrives in many pieces.
            self._rest += piece
            if len(self._rest) < self._wanted:
                return
            piece, self._rest = bytes(self._rest), bytearray()
        start, end = 0, len(piece)
        self._wanted = HEADER
        while end - start >= HEADER:
            length = int.from_bytes(piece[start : start + HEADER], "big")
            if length > MOST_BYTES:
                raise Garbled(f"{bytes(piece[start : start + HEADER])!r} is no length")
            stop = start + HEADER + length
            if stop > end:
                self._wanted = HEADER + length
                break
            yield piece[start + HEADER : stop]
            start = stop
        self._rest += piece[start:]


class Channel(Generic[In, Out]):
    """Sends lists of frames whole and in order, from any thread; receives on the event loop.

    `post` gathers the frames of one turn of the event loop into one write. `ended` is called once, at EOF; `garbled`
    once, for data that cannot be read: nothing is received afterwards. `unsendable` returns a replacement for a frame
    that cannot be encoded, or None; other frames are not affected.
    """

    def __init__(
        self,
        end: socket.socket,
        decoder: msgspec.msgpack.Decoder[list[In]],
        receive: Callable[[list[In]], None],
        *,
        ended: Callable[[], None],
        garbled: Callable[[Exception], None],
        unsendable: Callable[[Out, Exception], Out | None],
    ) -> None:
        end.setblocking(False)
        self._socket = end
        self._decoder = decoder
        self._receive = receive
        self._ended = ended
        self._garbled = garbled
        self._unsendable = unsendable
        self._encoder = msgspec.msgpack.Encoder()
        self._splitter = Splitter()
        self._lock = threading.Lock()
        self._outbox: list[Out] = []
        self._unsent = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start receiving."""
        self._loop = loop
        loop.add_reader(self._socket, self._readable)

    def post(self, frames: Sequence[Out]) -> None:
        """Send a frame with the next write of this turn; only on the event loop."""
        if not self._outbox:
            self._running_loop().call_soon(self._flush)
        self._outbox += frames

    def send(self, frames: Sequence[Out]) -> None:
        """Send frames now; from any thread. What the socket does not accept yet is buffered."""
        piece = self._encode(frames)
        with self._lock:
            if self._closed:
                return
            if self._unsent:
                self._unsent += piece
            else:
                self._push(piece)

    def _encode(self, frames: Sequence[Out]) -> bytes:
        try:
            return _framed(self._encoder.encode(frames))
        except Exception:  # noqa: BLE001 - one of them holds what user code put there, which may be anything
            return b"".join(map(self._encode_alone, frames))

    def _encode_alone(self, frame: Out) -> bytes:
        try:
            return _framed(self._encoder.encode([frame]))
        except Exception as error:  # noqa: BLE001 - as above
            instead = self._unsendable(frame, error)
        return b"" if instead is None else _framed(self._encoder.encode([instead]))

    def receive_rest(self) -> None:
        """Receive everything that the other side sent before it died."""
        while not self._closed and self._read_once():
            pass

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the channel is not open yet")
        return self._loop

    def _flush(self) -> None:
        frames, self._outbox = self._outbox, []
        self.send(frames)

    def _push(self, piece: bytes) -> None:
        try:
            sent = self._socket.send(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the other side is gone; its end is reported elsewhere
        if sent < len(piece):
            self._unsent += piece[sent:]
            self._running_loop().call_soon_threadsafe(self._await_room)

    def _await_room(self) -> None:
        if not self._closed:
            self._running_loop().add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        with self._lock:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                sent = len(self._unsent)
            del self._unsent[:sent]
            if not self._unsent:
                self._running_loop().remove_writer(self._socket)

    def _readable(self) -> None:
        self._read_once()

    def _read_once(self) -> bool:
        """Receive once; False if there is nothing to read now."""
        try:
            piece = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self.close()
            self._ended()
            return False
        return self._receive_piece(piece)

    def _receive_piece(self, piece: bytes) -> bool:
        bodies = self._splitter.feed(piece)
        while True:
            try:
                frames = self._decoder.decode(next(bodies))
            except StopIteration:
                return True
            except (Garbled, *UNREADABLE) as error:
                self.close()
                self._garbled(error)
                return False
            self._receive(frames)


def _framed(body: bytes) -> bytes:
    if len(body) > MOST_BYTES:
        raise ValueError(f"it has {len(body):,} bytes, and at most {MOST_BYTES:,} can be passed on")
    return len(body).to_bytes(HEADER, "big") + body
