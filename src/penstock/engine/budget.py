"""The retry budget: a dependency that fails must not be met by a storm. Pure arithmetic over a clock that is shown."""

import random
from datetime import timedelta

from penstock.model.timing import seconds

KEPT_QUEUES = 1000
LONGEST_SPREAD = timedelta(minutes=5)
"""How far the budget puts a retry off at most, however many jobs have failed at once."""


class RetryBudget:
    """Spreads the retries of each queue to so many a second, by the generic cell rate algorithm.

    What one second allows may come at once, so that a few retries wait no longer than their policy says. What does not
    fit into LONGEST_SPREAD is spread evenly over it. Kept per process: with n servers a queue gets n times as many.
    Queues whose budget is whole are forgotten.
    """

    def __init__(self, per_second: float, rng: random.Random) -> None:
        self._spacing = 1 / per_second
        self._burst = max(0.0, 1 - self._spacing)
        self._rng = rng
        self._expected: dict[str, float] = {}

    def slot(self, queue: str, now: float) -> timedelta:
        """How long from `now` (monotonic seconds) the next retry of this queue must wait at least; takes that slot."""
        if len(self._expected) > KEPT_QUEUES:
            self._expected = {name: at for name, at in self._expected.items() if at > now}
        expected = max(now, self._expected.get(queue, now))
        wait = expected - self._burst - now
        if wait > LONGEST_SPREAD.total_seconds():
            return LONGEST_SPREAD * self._rng.random()
        self._expected[queue] = expected + self._spacing
        return seconds(max(0.0, wait))
