"""Backoff: workers that end as soon as they are started are started again ever more slowly. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from penstock.autoscaler.fleets import FleetMember

FIRST = timedelta(seconds=1)
LONGEST = timedelta(minutes=1)
STEADY = timedelta(seconds=30)
"""A worker that lived this long was well."""


class StartBackoff(Struct, frozen=True):
    """How often in a row starts have failed, until when no other is tried, and why."""

    failures: int = 0
    failed_at: datetime | None = None
    until: datetime | None = None
    why: str = ""

    @property
    def delay(self) -> timedelta:
        return min(LONGEST, FIRST * (1 << min(max(0, self.failures - 1), 16)))

    def failed(self, now: datetime, why: str) -> "StartBackoff":
        """Once more, however many of one look have."""
        worse = StartBackoff(self.failures + 1)
        return StartBackoff(worse.failures, now, now + worse.delay, why)

    def rested(self, now: datetime) -> "StartBackoff":
        """Forget it once nothing has failed for long enough."""
        over = self.failed_at is not None and now - self.failed_at > 2 * self.delay + STEADY
        return StartBackoff() if over else self

    def allows(self, wanted: int, now: datetime, *, anybody_well: bool) -> int:
        """How many of the wanted starts may be tried now: none for a while, then one until somebody is well."""
        if self.until is not None and now < self.until:
            return 0
        return wanted if anybody_well or not self.failures else min(1, wanted)

    def told(self, now: datetime) -> str | None:
        """In words, while it lasts."""
        if not self.failures or self.until is None:
            return None
        wait = max(0.0, (self.until - now).total_seconds())
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"starting failed {times} ({self.why}); next try {'now' if wait == 0 else f'in {wait:.0f} s'}"


def failed_starts(
    ended: Sequence[FleetMember], joined: frozenset[str], asked: frozenset[str], now: datetime
) -> str | None:
    """Why starts are taken to have failed, if any have: ended unasked before joining, or badly soon after."""
    for member in ended:
        if member.name in asked:
            continue
        young = now - member.started_at < STEADY
        if member.name not in joined or (young and member.exit_status != 0):
            return _words(member, joined=member.name in joined)
    return None


def _words(member: FleetMember, *, joined: bool) -> str:
    status = "" if member.exit_status is None else f" with status {member.exit_status}"
    when = "soon after it had joined" if joined else "before it had joined"
    return f"{member.name} ended{status} {when}" + (f": {member.detail}" if member.detail else "")
