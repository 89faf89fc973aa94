"""The circuit of a sink: it opens after failures in a row, and then lets one probe through at a time. Pure."""

import random
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.events.retries import jittered

OPENS_AFTER: Final = 5
"""So many failures in a row mean that the sink is down, rather than that it refuses an event."""
PROBE_PAUSES: Final = tuple(timedelta(seconds=pause) for pause in (5, 10, 20, 40, 60))
"""The pause before each probe; the last repeats. A probe costs no event an attempt, so its schedule may be denser than
theirs: a sink that was restarted has its events again within seconds, any other about a minute after it is back."""


class Circuit(Struct, frozen=True):
    """A sink's failures in a row, since its last success, and when the next probe of an open circuit is due.

    While it is open nothing but probes is sent, one at a time: the events wait in the journal.
    """

    failures: int = 0
    probe_at: datetime | None = None

    @property
    def open(self) -> bool:
        return self.probe_at is not None

    def admits(self, now: datetime) -> bool:
        """Whether something may be sent now: anything while it is closed, a probe when it is due."""
        return self.probe_at is None or self.probe_at <= now

    def until_probe(self, now: datetime) -> timedelta:
        """How long nothing may be sent."""
        return timedelta(0) if self.probe_at is None else max(self.probe_at - now, timedelta(0))

    def after_success(self) -> "Circuit":
        return Circuit()

    def after_failure(self, now: datetime, rng: random.Random, wish: timedelta | None = None) -> "Circuit":
        """One failure more. Open, the next probe is due after the pause of its turn; the last pause repeats."""
        failures = self.failures + 1
        if failures < OPENS_AFTER:
            return replace(self, failures=failures)
        turn = min(failures - OPENS_AFTER, len(PROBE_PAUSES) - 1)
        return Circuit(failures, now + jittered(PROBE_PAUSES[turn], rng, wish))
