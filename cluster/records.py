"""What is written outside the system: histories by its clients, a ledger by its handlers.

All times are seconds of the machine's monotonic clock, which its processes share.
"""

import os
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class Phase(StrEnum):
    """`fail`: certainly not done. `info`: unknown; it may be done now, later or never."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Call(StrEnum):
    SUBMIT = "submit"
    CANCEL = "cancel"
    READ = "read"


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of a client's history: order `n` of the load was asked for, or answered.

    `request` names the call of the SDK that the order was a part of; plain HTTP has none. `shard` is the one that an
    error of the SDK blames.
    """

    phase: Phase
    call: Call
    n: int
    at: float
    job: str | None = None
    state: str | None = None
    fence: int | None = None
    status: int | None = None
    delay: float = 0.0
    request: str | None = None
    shard: int | None = None


class Mark(StrEnum):
    START = "start"
    END = "end"
    ERROR = "error"


class Entry(Struct, frozen=True, kw_only=True):
    """One line of the ledger: what a handler did under this fence; `worker` names the process that took it."""

    mark: Mark
    job: str
    n: int
    fence: int
    attempt: int
    at: float
    pid: int
    worker: str


class History:
    """A client's file. Events are also kept in memory, for threads that wait for them."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")
        self._lock = threading.Lock()
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        with self._lock:
            self._file.write(msgspec.json.encode(event) + b"\n")
            self.events.append(event)

    def close(self) -> None:
        self._file.close()


def append(file: Path, entry: Entry) -> None:
    """One line in one write, so that processes do not mix."""
    ledger = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(ledger, msgspec.json.encode(entry) + b"\n")
    finally:
        os.close(ledger)


def events_of(files: Iterator[Path]) -> list[Event]:
    """Every event of every history, in the order of time."""
    found = [event for file in files for event in _lines(file.read_bytes(), Event)]
    return sorted(found, key=lambda event: event.at)


class Tail:
    """Reads a ledger that others go on writing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """The entries written since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as ledger:
            ledger.seek(self._offset)
            text = ledger.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = list(_lines(whole, Entry))
        self.entries += fresh
        return fresh


def _lines(text: bytes, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    return (decoder.decode(line) for line in text.splitlines())
