"""What a command that runs a role sets up in its process: settings, log and event loop.

The log is written for a person, with times, parts and short job ids; or as JSON, for programs. Both name the request
that a line belongs to, and neither shows a key.
"""

import asyncio
import gc
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from penstock.cli import options
from penstock.cli.style import bad, dim, has_colours, warned
from penstock.config import LogSettings, Settings, variable
from penstock.model.keys import redacted
from penstock.model.request_ids import current_request

R = TypeVar("R")
T = TypeVar("T")

Configure = Callable[[Mapping[str, object]], Settings]
"""Load the settings with these flags over them, and start the log."""


def role(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command --log-level and --log-format. It takes them and --config as one argument, `configure`."""

    @wraps(function)
    def run(*, config: Path | None, log_level: str | None, log_format: str | None, **given: object) -> R:
        def configure(flags: Mapping[str, object]) -> Settings:
            settings = options.settings(config, {**flags, "log.level": log_level, "log.format": log_format})
            start_logging(settings.log)
            return settings

        return function(configure=configure, **given)

    return options.logged(run)


YOUNG_OBJECTS = 20_000
"""Allocations before the garbage collector runs: a batch of jobs is ten times Python's own threshold."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where that is installed; what it returns."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def run_for_long(main: Coroutine[Any, Any, T]) -> T:
    """As `run`, for a role: the garbage collector skips what was imported, and runs less often."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    return run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


PART_WIDTH = 9
_JOB_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})\b")


def start_logging(log: LogSettings) -> None:
    """Write the log to stderr, here and in the worker processes this one starts."""
    os.environ[variable("log.level")] = log.level
    os.environ[variable("log.format")] = log.format
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if log.format == "json" else ReadableFormatter(colours=has_colours(sys.stderr))
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(log.level.upper())


class JsonFormatter(logging.Formatter):
    """One JSON object per line, see `LogRecordLine`. Job ids are whole, and listed."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line = LogRecordLine(
            at=datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            level=record.levelname.lower(),
            part=record.name.removeprefix("penstock."),
            message=redacted(message),
            pid=record.process or 0,
            request=redacted(current_request()) or None,
            jobs=tuple(dict.fromkeys(found[0] for found in _JOB_ID.finditer(message))),
            error=redacted(self.formatException(record.exc_info)) if record.exc_info else None,
        )
        return _encode(line).decode()


class LogRecordLine(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the JSON log. `at` is in UTC; `request`, `jobs` and `error` (a traceback) are there where known."""

    at: str
    level: str
    part: str
    message: str
    pid: int
    request: str | None = None
    jobs: tuple[str, ...] = ()
    error: str | None = None


_encode = msgspec.json.Encoder().encode


class ReadableFormatter(logging.Formatter):
    """`2026-01-31 18:03:21 server    the message`; warnings and errors say so, and a request's lines its id."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        part = record.name.removeprefix("penstock.")
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{dim(f'{clock} {part:<{PART_WIDTH}}')} {_message(record)}{_request_mark()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        # Penstock logs no key; this covers other libraries and tracebacks.
        return redacted(line if self._colours else click.unstyle(line))


def _request_mark() -> str:
    request = current_request()
    return dim(f"  request={request}") if request else ""


def short_ids(text: str) -> str:
    """Job ids by their last eight digits: the first ones only tell the time, and are the same for neighbours."""
    return _JOB_ID.sub(r"…\1", text)


def _message(record: logging.LogRecord) -> str:
    text = short_ids(record.getMessage())
    if record.levelno >= logging.ERROR:
        return bad(f"error: {text}")
    return warned(f"warning: {text}") if record.levelno >= logging.WARNING else text
