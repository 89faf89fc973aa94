"""From text as it is written to log lines as they are kept: whole lines, with a cap."""

from datetime import datetime

from penstock.model.job import LogLine
from penstock.model.text import readable

LINE_CHARACTERS = 16 * 1024
"""A line without an end is cut here, so that it is seen before it ends."""


class LineSplitter:
    """One attempt's log. Text beyond `log_bytes` is dropped, and one last line says so."""

    def __init__(self, attempt: int, log_bytes: int) -> None:
        self._attempt = attempt
        self._cap = log_bytes
        self._left = log_bytes
        self._partial: dict[str, str] = {}
        self._ready: list[LogLine] = []

    def write(self, at: datetime, stream: str, text: str) -> bool:
        """Add text; True when that made whole lines ready to be taken."""
        *whole, rest = (self._partial.pop(stream, "") + text).split("\n")
        if len(rest) > LINE_CHARACTERS:
            whole.append(rest)
            rest = ""
        if rest:
            self._partial[stream] = rest
        for line in whole:
            self._keep(at, stream, line)
        return bool(self._ready)

    def take(self) -> tuple[LogLine, ...]:
        """The lines that are ready, once each."""
        ready, self._ready = tuple(self._ready), []
        return ready

    def finish(self, at: datetime) -> tuple[LogLine, ...]:
        """What is left, unfinished lines included."""
        for stream, rest in self._partial.items():
            self._keep(at, stream, rest)
        self._partial.clear()
        return self.take()

    def _keep(self, at: datetime, stream: str, line: str) -> None:
        if self._left < 0:
            return
        line = readable(line)
        self._left -= len(line.encode()) + 1
        if self._left < 0:
            self._ready.append(LogLine(at, "stderr", f"… log cut at {self._cap} bytes", self._attempt))
        else:
            self._ready.append(LogLine(at, stream, line.rstrip("\r"), self._attempt))
