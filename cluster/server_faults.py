"""Faults that the servers logged: an error and its traceback, as it stands in the log of the process."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
_ERROR = re.compile(r"\S+ \S+ \S+ +error: ")


class ServerFault(Struct, frozen=True):
    """One entry of a log at level error: its line, which names the request, and the traceback below it."""

    log: Path
    lines: tuple[str, ...]


def server_faults(logs: Iterable[Path]) -> list[ServerFault]:
    """Every error in these logs, of each log in its order."""
    return [ServerFault(log, lines) for log in logs for lines in _entries(log) if _ERROR.match(lines[0])]


def _entries(log: Path) -> Iterator[tuple[str, ...]]:
    entry: list[str] = []
    for line in log.read_text(errors="replace").splitlines():
        if entry and _ENTRY.match(line):
            yield tuple(entry)
            entry = []
        entry.append(line)
    if entry:
        yield tuple(entry)
