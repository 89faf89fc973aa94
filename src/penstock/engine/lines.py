"""Which lines are worth a look in the store itself: behind the broker's tickets the jobs of a queue stand there."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from penstock.model.ids import ShardId
from penstock.model.timing import Clock

LOOK_EVERY = timedelta(seconds=1)
"""How often a line is looked at of which nothing is known."""

Line = tuple[ShardId, str]
"""The jobs of one queue on one shard."""


class Lines:
    """What this process's takers have seen. A hint: being wrong costs a look or a moment, never a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._long: set[Line] = set()
        self._looked_at: dict[Line, float] = {}

    def worth(self, shard: ShardId, queues: Iterable[str]) -> list[str]:
        """Those whose line here is long, and those whose line nobody has looked at for a while."""
        now = self._clock.monotonic()
        return [queue for queue in queues if (shard, queue) in self._long or self._rested((shard, queue), now)]

    def busy(self, lines: Iterable[Line]) -> None:
        """There were as many tickets as a taker could take: more jobs may stand behind them."""
        self._long.update(lines)

    def looked(self, shard: ShardId, asked: Mapping[str, int], found: Mapping[str, int]) -> None:
        """A line that gave as much as was asked of it goes on; any other is at its end."""
        now = self._clock.monotonic()
        for queue, jobs in asked.items():
            self._looked_at[shard, queue] = now
            if found.get(queue, 0) >= jobs:
                self._long.add((shard, queue))
            else:
                self._long.discard((shard, queue))

    def _rested(self, line: Line, now: float) -> bool:
        return now - self._looked_at.get(line, float("-inf")) >= LOOK_EVERY.total_seconds()
