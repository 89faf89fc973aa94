"""Which lines are worth a look in the store itself: behind the broker's tickets the jobs of a type stand there."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from penstock.engine.by_shard import split
from penstock.model.ids import ShardId
from penstock.model.job import BacklogKey, Claim
from penstock.model.timing import Clock
from penstock.store import Shard, Share

CHECK_INTERVAL = timedelta(seconds=1)
"""How often a line is looked at of which nothing is known."""

ShardBacklog = tuple[ShardId, BacklogKey]
"""A line on one shard."""


class BacklogHints:
    """What this process's takers have seen. A hint: being wrong costs a look or a moment, never a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._long: dict[ShardBacklog, int] = {}
        self._checked_at: dict[ShardBacklog, float] = {}

    def to_check(self, shard: ShardId, lines: Iterable[BacklogKey]) -> list[BacklogKey]:
        """Those that are long here, and those that nobody has looked at for a while."""
        now = self._clock.monotonic()
        return [line for line in lines if (shard, line) in self._long or self._rested((shard, line), now)]

    def priorities(self, shards: Iterable[Shard], lines: frozenset[BacklogKey]) -> dict[str, int]:
        """By queue, the priority of the next jobs in these lines, of those that are known to be long."""
        urgent: dict[str, int] = {}
        here = {shard.shard for shard in shards}
        for (shard, line), priority in self._long.items():
            if priority > urgent.get(line.queue, 0) and shard in here and line in lines:
                urgent[line.queue] = priority
        return urgent

    def mark_full(self, places: Iterable[ShardBacklog]) -> None:
        """There were as many tickets as a taker could take: more jobs may stand behind them, of unknown priority."""
        for place in places:
            self._long.setdefault(place, 0)

    def record_check(self, shard: ShardId, asked: Iterable[Share], claims: Sequence[Claim]) -> None:
        """The lines of a queue that gave as much as was asked of it go on; otherwise all of them are at their end."""
        now = self._clock.monotonic()
        found = split(claims, lambda claim: claim.queue)
        for share in asked:
            given = found.get(share.queue, [])
            if len(given) >= share.jobs:
                self._long.update({(shard, BacklogKey(claim.queue, claim.type)): claim.priority for claim in given})
            else:
                self._end([(shard, BacklogKey(share.queue, type_name)) for type_name in share.types], now)

    def _end(self, places: Iterable[ShardBacklog], now: float) -> None:
        for place in places:
            self._long.pop(place, None)
            self._checked_at[place] = now

    def _rested(self, place: ShardBacklog, now: float) -> bool:
        return now - self._checked_at.get(place, float("-inf")) >= CHECK_INTERVAL.total_seconds()
