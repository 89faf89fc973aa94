"""After a fork: what a process must not have in common with the template it came from."""

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from msgspec import Struct

Handler = Callable[[int, FrameType | None], object] | int | None


class Before(Struct, frozen=True):
    """How this process was before the app was imported, to be had again where no user code is to run."""

    handlers: Mapping[signal.Signals, Handler]
    environment: Mapping[str, str]

    @classmethod
    def now(cls) -> "Before":
        numbers = map(signal.Signals, signal.valid_signals() & set(signal.Signals))
        return cls({number: signal.getsignal(number) for number in numbers}, dict(os.environ))


def freshen() -> None:
    """A session of its own, random numbers of its own, and none of the template's duties at exit.

    What was registered at import is the template's to clean up: a folder that one fork removed would be gone for all.
    """
    os.setsid()
    reseed()
    atexit._clear()  # noqa: SLF001 - what multiprocessing does too; there is no other way
    atexit.register(logging.shutdown)


def reseed() -> None:
    """Other numbers than the template's next ones. Python sees to its own `random` at a fork; numpy does not."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def forget_app(before: Before, added: Mapping[str, str]) -> None:
    """For a worker, in which the app is imported and never used: as if it were not, with `added` to the environment."""
    os.environ.clear()
    os.environ.update({**before.environment, **added})
    for number, handler in before.handlers.items():
        # None stands for a handler that was not set from Python, which cannot be set from here either.
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    _reset_logging()


def _reset_logging() -> None:
    logging.disable(logging.NOTSET)
    root = logging.getLogger()
    ours = [one for name, one in root.manager.loggerDict.items() if name.partition(".")[0] == "penstock"]
    for logger in (root, *(one for one in ours if isinstance(one, logging.Logger))):
        logger.handlers.clear()
        logger.filters.clear()
        logger.setLevel(logging.NOTSET)
        logger.disabled, logger.propagate = False, True
