"""The time that an invocation has, less what it needs to end in good order."""

from datetime import timedelta
from typing import Any, Final

from penstock.model.clock import Clock, seconds

RESERVE: Final = seconds(3)
"""For the last writes, and for the answer."""
ASSUMED: Final = seconds(30)
"""Where the context says nothing: an invocation by hand, or a test."""


class Budget:
    """How long an invocation may go on."""

    def __init__(self, clock: Clock, span: timedelta) -> None:
        self._clock = clock
        self._until = clock.monotonic() + span.total_seconds()

    @property
    def left(self) -> timedelta:
        """Never below zero."""
        return seconds(max(0.0, self._until - self._clock.monotonic()))

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._until


def budget_of(context: Any, clock: Clock) -> Budget:
    """What Lambda's context says is left, less the reserve."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    span = ASSUMED if remaining is None else timedelta(milliseconds=remaining())
    return Budget(clock, span - RESERVE)
