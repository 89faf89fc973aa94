"""The shard's clock: the wall time at which the file was opened, extrapolated with the monotonic clock.

A step of the wall clock (set by hand or by NTP, or a machine that was suspended) is followed, so that due times and
schedules go by the wall. What the shard counts from now on, a lease above all, is no time of day: the commit that
follows a step moves it by as much, so that it ends neither sooner nor later than it would have.
"""

import logging
from datetime import datetime, timedelta

import apsw

from penstock.model.timing import Clock, millis, seconds
from penstock.store.sqlite.statements import load

LEAST_STEP = timedelta(milliseconds=500)
"""Anything less is the time between two readings. It is not lost: what adds up to a step is followed as one."""

_MOVES = [load(f"step_{name}") for name in ("leases", "tickets", "retries", "roles", "workers")]

logger = logging.getLogger(__name__)


class ShardClock:
    """Only the writer may call `follow`; `now` may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = self._wall_start()

    def now(self) -> datetime:
        """Shard time: changes by a step only once a commit has moved what it concerns."""
        return self._start + seconds(self._clock.monotonic())

    def step(self) -> timedelta:
        """By how much the wall clock was stepped since the last step that was followed."""
        step = self._wall_start() - self._start
        return step if abs(step) >= LEAST_STEP else timedelta(0)

    def follow(self, step: timedelta) -> None:
        """Go on from a step; after the commit that has moved deadlines by it."""
        self._start += step
        logger.warning("the wall clock was stepped by %+.1f s; leases end as if it had not been", step.total_seconds())

    def _wall_start(self) -> datetime:
        """What the wall clock said when the monotonic clock was 0, as it says now."""
        return self._clock.now() - seconds(self._clock.monotonic())


def move_deadlines(connection: apsw.Connection, step: timedelta) -> None:
    """Move what was counted from now on: leases, tickets, waits for a retry, roles, and when workers were seen."""
    for text in _MOVES:
        connection.execute(text, {"step": millis(step)})
