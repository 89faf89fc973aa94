"""Waiting for something to become true, with a deadline."""

import time
from collections.abc import Callable

from penstock.model.errors import PenstockError
from penstock.model.timing import Clock

PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.05


class NotAsTold(PenstockError):
    """Something did not happen as the story tells it."""

    code = "not_as_told"


def until(what: str, is_so: Callable[[], bool], clock: Clock) -> None:
    """Return once it is so; NotAsTold if that takes too long."""
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if clock.monotonic() > deadline:
            raise NotAsTold(f"waited {PATIENCE_SECONDS:g} s in vain until {what}")
        time.sleep(LOOK_SECONDS)


def expect(what: str, is_so: bool) -> None:
    """Raise NotAsTold unless it is so."""
    if not is_so:
        raise NotAsTold(f"not as told: {what}")
