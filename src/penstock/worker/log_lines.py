"""The log of one attempt as lines of bounded size: of a handler in an executor, or of a program in the agent. Pure."""

from datetime import datetime

from penstock.model.job import LogLine
from penstock.model.text import readable

LINE_CHARACTERS = 16 * 1024
"""An unfinished line is cut at this length, so that it is sent before it ends."""


class LineSplitter:
    """Splits one attempt's output into lines. Text beyond `log_bytes` is dropped, and one last line says so."""

    def __init__(self, attempt: int, log_bytes: int) -> None:
        self._attempt = attempt
        self._cap = log_bytes
        self._left = log_bytes
        self._partial: dict[str, str] = {}
        self._ready: list[LogLine] = []

    def write(self, at: datetime, stream: str, text: str) -> bool:
        """Add text; True if complete lines are ready."""
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
        """Take the lines that are ready."""
        ready, self._ready = tuple(self._ready), []
        return ready

    def finish(self, at: datetime) -> tuple[LogLine, ...]:
        """Take the remaining lines, unfinished ones included."""
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
