"""Waiting for a line of the log, as an operator would, instead of looking for what it tells again and again."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self, text: str, heard: asyncio.Event) -> None:
        super().__init__()
        self._text = text
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._loop.call_soon_threadsafe(self._heard.set)


@contextmanager
def log_line(text: str, logger: str = "penstock") -> Iterator[asyncio.Event]:
    """Set once a line with this text was logged in the body, by whichever thread."""
    heard = asyncio.Event()
    listener = _Listener(text, heard)
    logging.getLogger(logger).addHandler(listener)
    try:
        yield heard
    finally:
        logging.getLogger(logger).removeHandler(listener)
