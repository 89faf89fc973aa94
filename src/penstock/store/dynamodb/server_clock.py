"""DynamoDB's own clock as this process knows it, from the `Date` header of every answer.

A header tells whole seconds: the server's clock was in [Date, Date + 1 s) at some instant between sending and
receiving. Each answer thus bounds the difference between that clock and this machine's monotonic one; the intersection
of all bounds is narrow after some twenty answers. The wall clock of the machine is never asked.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

from penstock.model.clock import EPOCH, Clock, SystemClock, from_millis

DRIFT = 200e-6
"""By how much a monotonic clock may run wrong, so that old bounds widen with time."""

SECOND = 1.0


class TableClock(Protocol):
    """The shard's clock: `now` is certainly not after it, `latest` certainly not before it.

    What is to have passed is compared with `now`; a deadline that is granted counts from `latest`.
    """

    def now(self) -> int:
        """In milliseconds; never goes back."""
        ...

    def latest(self) -> int: ...

    def observe(self, date: str, sent: float, received: float) -> None:
        """Note the `Date` of an answer, and the monotonic times between which it was given."""
        ...


class ServerDate:
    """Bounds of the server's clock minus the monotonic clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._monotonic = (clock or SystemClock()).monotonic
        self._least = float("-inf")
        self._most = float("inf")
        self._at = 0.0
        self._newest = 0

    def observe(self, date: str, sent: float, received: float) -> None:
        told = _seconds(date)
        if told is None:
            return
        least, most = told - received, told + SECOND - sent
        widened = self._drift(received)
        self._least, self._most = max(self._least - widened, least), min(self._most + widened, most)
        self._at = received
        if self._least > self._most:
            # Two front ends disagree, or the server's clock was stepped: only the newest answer counts.
            self._least, self._most = least, most

    @property
    def known(self) -> bool:
        return self._most < float("inf")

    @property
    def doubt(self) -> timedelta:
        """How far apart the two bounds are."""
        return timedelta(seconds=self._most - self._least)

    def now(self) -> int:
        at = self._monotonic()
        self._newest = max(self._newest, int((at + self._least - self._drift(at)) * 1000))
        return self._newest

    def latest(self) -> int:
        at = self._monotonic()
        return max(self._newest, int((at + self._most + self._drift(at)) * 1000) + 1)

    def _drift(self, at: float) -> float:
        return DRIFT * max(0.0, at - self._at)


class GivenClock:
    """A clock that is given, for tests: simulated time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> int:
        return (self._clock.now() - EPOCH) // timedelta(milliseconds=1)

    latest = now

    def observe(self, date: str, sent: float, received: float) -> None:
        """Nothing: the server's clock does not count here."""


def instant_of(clock: TableClock) -> datetime:
    return from_millis(clock.now())


def _seconds(date: str) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
