"""One attempt of inline mode: the handler called here and now, by the rules of a worker's own run."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from penstock.config.settings import LimitSettings
from penstock.context import Cancelled, logger
from penstock.model.clock import Clock
from penstock.model.job import LogLine
from penstock.worker.executor.run import End, Run

T = TypeVar("T")


def run_to_end(attempt: Run) -> End:
    """Call the handler and wait for its end, whatever it is."""
    assert attempt.handler.function is not None
    try:
        args, named = attempt.arguments()
        attempt.calling = True
        value = attempt.handler.function(*args, **named)
        attempt.returned(_await(value) if inspect.iscoroutine(value) else value)
    except (Exception, SystemExit, Cancelled) as error:  # noqa: BLE001 - all of it is its job's error
        attempt.raised(error)
    return attempt.end


def _await(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where an event loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


@contextmanager
def recorded(attempt: int, clock: Clock, lines: list[LogLine]) -> Iterator[None]:
    """Append the `logging` records made meanwhile to `lines`."""
    keeper, level = RecordingHandler(attempt, clock, lines), logger.level
    logging.getLogger().addHandler(keeper)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logging.getLogger().removeHandler(keeper)


class Unheard:
    """The host of an inline run: nobody listens while it runs; progress is looked at when it has ended."""

    result_bytes = LimitSettings().result_bytes

    def new_log(self, attempt: int, send: Callable[[tuple[LogLine, ...]], None]) -> NoReturn:
        raise RuntimeError("inline runs are not captured")

    def send(self, frames: object) -> None: ...

    def soon(self) -> None: ...


class RecordingHandler(logging.Handler):
    """Keeps records as log lines."""

    def __init__(self, attempt: int, clock: Clock, lines: list[LogLine]) -> None:
        super().__init__()
        self._attempt = attempt
        self._clock = clock
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(LogLine(self._clock.now(), record.levelname.lower(), self.format(record), self._attempt))
