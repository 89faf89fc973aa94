"""The log a person reads while a server or worker runs: time, part, message; job ids short."""

import logging
import os
import re
import sys
import time

import click

from penstock.cli.ink import bad, coloured, dim, warned
from penstock.model.keys import redacted

LEVEL_VARIABLE = "PENSTOCK_LOG_LEVEL"
PART_WIDTH = 9
_JOB_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})\b")


def start_logging(level: str) -> None:
    """Write the log to stderr, here and in the worker processes this one starts."""
    os.environ[LEVEL_VARIABLE] = level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ReadableFormatter(colours=coloured(sys.stderr)))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(level.upper())


class ReadableFormatter(logging.Formatter):
    """`18:03:21 server    the message`; warnings and errors say so."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        part = record.name.removeprefix("penstock.")
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{dim(f'{clock} {part:<{PART_WIDTH}}')} {_levelled(record)}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        # Nothing of ours logs a key; this is for what others might say, in a traceback for one.
        return redacted(line if self._colours else click.unstyle(line))


def short_ids(text: str) -> str:
    """Job ids by their last eight digits: the first ones only tell the time, and are the same for neighbours."""
    return _JOB_ID.sub(r"…\1", text)


def _levelled(record: logging.LogRecord) -> str:
    text = short_ids(record.getMessage())
    if record.levelno >= logging.ERROR:
        return bad(f"error: {text}")
    return warned(f"warning: {text}") if record.levelno >= logging.WARNING else text
