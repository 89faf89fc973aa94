"""After failures in a row calls fail at once, so that an outage costs its callers no time; then one call tries."""

import random
from datetime import timedelta

from penstock.model.timing import Clock

FAILURES = 3
REST = timedelta(milliseconds=500)


class RedisBreaker:
    """Counts failures in a row. The rest between trials is jittered, so that processes do not come back together."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._shut_until = 0.0

    def admits(self) -> bool:
        """May this call go ahead? While broken, one call in each rest may."""
        if self._failures < FAILURES:
            return True
        if self._clock.monotonic() < self._shut_until:
            return False
        self._shut()
        return True

    def failed(self) -> None:
        self._failures += 1
        self._shut()

    def worked(self) -> None:
        self._failures = 0

    def _shut(self) -> None:
        self._shut_until = self._clock.monotonic() + REST.total_seconds() * self._rng.uniform(0.5, 1.5)
