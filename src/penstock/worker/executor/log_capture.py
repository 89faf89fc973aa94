"""Captures what a handler prints or logs as its job's log; all other output goes to the worker's stderr."""

import contextvars
import faulthandler
import io
import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from penstock.context import logger
from penstock.model.clock import Clock
from penstock.model.job import LogLine
from penstock.model.text import readable
from penstock.worker.log_lines import LineSplitter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


FLUSH_SECONDS = 0.25
"""Lines of one job are sent together, after this delay at most."""


class Author(Protocol):
    """One run, as the owner of a log; the log is created with the first write."""

    log: "JobLog | None"

    def open_log(self) -> "JobLog": ...


WRITING: contextvars.ContextVar[Author | None] = contextvars.ContextVar("penstock_writing", default=None)
"""The run of the current task or thread, inherited through the context."""


class JobLog:
    """Sends one attempt's log to the agent.

    `later` schedules a `flush`. Lines are sent from the thread that writes, not from the event loop: the log of a
    handler that blocks the loop must be seen.
    """

    def __init__(
        self, lines: LineSplitter, clock: Clock, send: Callable[[tuple[LogLine, ...]], None], later: Callable[[], None]
    ) -> None:
        self._lines = lines
        self._clock = clock
        self._send = send
        self._later = later
        self._lock = threading.Lock()
        self._sent_at = float("-inf")

    def write(self, stream: str, text: str) -> None:
        with self._lock:
            if not self._lines.write(self._clock.now(), stream, text):
                return
            if self._clock.monotonic() - self._sent_at >= FLUSH_SECONDS:
                self._flush(self._lines.take())
            else:
                self._later()

    def flush(self) -> None:
        """Send the pending lines."""
        with self._lock:
            self._flush(self._lines.take())

    def finish(self) -> None:
        with self._lock:
            self._flush(self._lines.finish(self._clock.now()))

    def _flush(self, lines: tuple[LogLine, ...]) -> None:
        if lines:
            self._sent_at = self._clock.monotonic()
            self._send(lines)


class Stream(io.TextIOBase):
    """Replaces sys.stdout or sys.stderr."""

    def __init__(self, name: str, outside: TextIO) -> None:
        self._name = name
        self._outside = outside
        self.buffer = Bytes(self)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        author = WRITING.get()
        if author is None:
            return self._outside.write(text)
        (author.log or author.open_log()).write(self._name, text)
        return len(text)

    def flush(self) -> None:
        if WRITING.get() is None:
            self._outside.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The real descriptor: output of a handler's child processes goes to the worker's stderr."""
        return self._outside.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


class Bytes(io.RawIOBase):
    """The stream's `buffer`, which takes bytes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, piece: "ReadableBuffer") -> int:
        raw = bytes(piece)
        self._stream.write(raw.decode("utf-8", "replace"))
        return len(raw)

    def writable(self) -> bool:
        return True


class RecordHandler(logging.Handler):
    """Adds `logging` records to the log of their job; the stream is the level's name. Never raises."""

    def __init__(self, outside: TextIO) -> None:
        super().__init__()
        self._outside = outside
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        level, name, text = readable(record.levelname).lower(), readable(record.name), self._text(record)
        author = WRITING.get()
        if author is None:
            self._outside.write(f"{level} {name}: {text}\n")
            self._outside.flush()
        else:
            named = text if name == logger.name else f"{name}: {text}"
            (author.log or author.open_log()).write(level, named + "\n")

    def _text(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 - a message that does not fit its arguments, or their own text
            return f"{readable(record.msg)} (it cannot be formatted: {readable(error)})"


def install() -> None:
    """Start capturing. Call it before the app is imported, so that its `logging.basicConfig` adds no second copy."""
    outside = sys.stderr
    faulthandler.enable(outside)
    sys.stdout = Stream("stdout", outside)
    sys.stderr = Stream("stderr", outside)
    root = logging.getLogger()
    root.addHandler(RecordHandler(outside))
    root.setLevel(logging.INFO)
    logger.setLevel(logging.DEBUG)
