"""When a lease that is not renewed must be given up. Pure arithmetic; monotonic seconds."""

from typing import Self

from msgspec import Struct

CLOCK_SKEW_SECONDS = 1.0


class LeaseTerms(Struct, frozen=True):
    """The engine's lease and heartbeat, and what follows from them.

    `skew` is kept clear before the end of a lease; `notice` is how long before that a job is asked to stop.
    """

    lease: float
    heartbeat: float
    skew: float
    notice: float

    @classmethod
    def of(cls, lease: float, heartbeat: float, grace: float) -> Self:
        return cls(
            lease=lease,
            heartbeat=min(heartbeat, lease / 3),
            skew=min(CLOCK_SKEW_SECONDS, lease / 10),
            notice=min(grace, lease / 4),
        )

    @property
    def claim_wait(self) -> float:
        """How long a claim may wait for work: a lease counts from the asking, so the wait is taken off it."""
        return self.lease / 3

    def gone(self, lease_ends: float) -> float:
        """From when on nothing may be said or done under the lease."""
        return lease_ends - self.skew

    def given_up(self, lease_ends: float) -> float:
        """From when on an end is no longer told. Until then it is, also beyond the lease: the fence guards the job."""
        return lease_ends + self.lease

    def gone_by(self, now: float) -> float:
        """Leases that end by then are gone now."""
        return now + self.skew

    def late_by(self, now: float) -> float:
        """For leases that end by then it is time to stop."""
        return now + self.skew + self.notice

    def stop_at(self, lease_ends: float) -> float:
        """When to ask an unrenewed job to stop, so that it can before the lease is gone."""
        return lease_ends - self.skew - self.notice
