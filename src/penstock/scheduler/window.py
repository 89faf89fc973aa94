"""How fast each queue drains, as far as this process can see, and so how many tickets the broker should hold."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from penstock.config import TimingSettings
from penstock.model.job import Ticket
from penstock.model.timing import seconds
from penstock.scheduler import plan

SOONEST = timedelta(milliseconds=25)
LATEST = timedelta(seconds=1)


class Window:
    """Shared by the dispatchers of one process, which fill the same broker."""

    def __init__(self, timing: TimingSettings, now: float) -> None:
        self._timing = timing
        self._seen_at = now
        self._rates: dict[str, float] = {}
        self._held: Mapping[str, int] = {}
        self._posted: Counter[str] = Counter()

    @property
    def allowed(self) -> dict[str, int]:
        """How many tickets the broker may hold of each queue, where it is more than the least."""
        return plan.windows(self._rates, self._timing)

    def see(self, depths: Mapping[str, int], now: float) -> None:
        """Learn from what the broker holds now."""
        self._rates = plan.drain_rates(self._rates, self._held, self._posted, depths, now - self._seen_at)
        self._held, self._posted, self._seen_at = depths, Counter(), now

    def posted(self, tickets: Sequence[Ticket]) -> None:
        self._posted.update(ticket.queue for ticket in tickets)

    def refill(self, backlog: Iterable[str]) -> timedelta:
        """When to look again while jobs wait behind the window: long before the fastest queue has run dry."""
        return min((self._lasts(queue) / 4 for queue in backlog), default=LATEST)

    def _lasts(self, queue: str) -> timedelta:
        rate = self._rates.get(queue, 0.0)
        held = self._held.get(queue, 0) + self._posted[queue]
        return max(4 * SOONEST, min(4 * LATEST, seconds(held / rate))) if rate else 4 * LATEST
