"""The retry budget: a dependency that fails must not be met by a storm. Pure arithmetic over a clock that is shown."""

from datetime import timedelta

from penstock.model.timing import seconds

KEPT_QUEUES = 1000


class RetryBudget:
    """Spreads the retries of each queue to so many a second, by the generic cell rate algorithm.

    What one second allows may come at once, so that a few retries wait no longer than their policy says. Kept per
    process: with n servers a queue gets n times as many. Queues whose budget is whole are forgotten.
    """

    def __init__(self, per_second: float) -> None:
        self._spacing = 1 / per_second
        self._burst = max(0.0, 1 - self._spacing)
        self._expected: dict[str, float] = {}

    def slot(self, queue: str, now: float) -> timedelta:
        """How long from `now` (monotonic seconds) the next retry of this queue must wait at least; takes that slot."""
        if len(self._expected) > KEPT_QUEUES:
            self._expected = {name: at for name, at in self._expected.items() if at > now}
        expected = max(now, self._expected.get(queue, now))
        self._expected[queue] = expected + self._spacing
        return seconds(max(0.0, expected - self._burst - now))
