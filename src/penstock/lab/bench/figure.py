"""A measured number, and how much work measuring it takes."""

from msgspec import Struct


class Figure(Struct, frozen=True):
    """One number with its unit. `note` says what is odd about it, or what it is compared with."""

    part: str
    name: str
    value: float
    unit: str
    note: str = ""


class Amounts(Struct, frozen=True, kw_only=True):
    """How much work each part does. `scaled` changes the size; what would take too long only ever shrinks.

    Ten times the size has a million scheduled jobs wait in the growth part.
    """

    drain_jobs: int = 40_000
    submit_seconds: float = 3.0
    bulk_jobs: int = 40_000
    latency_jobs: int = 250
    due_jobs: int = 100
    crowd_jobs: int = 100_000
    few_jobs: int = 10_000
    scheduled_jobs: int = 100_000
    queued_jobs: int = 200_000
    zero_jobs: int = 20
    idle_seconds: float = 10.0
    starts: int = 5

    def scaled(self, scale: float, drain_jobs: int | None) -> "Amounts":
        """The same in another size; never so little that nothing can be told."""
        return Amounts(
            drain_jobs=drain_jobs or _scaled(self.drain_jobs, scale),
            submit_seconds=max(0.5, self.submit_seconds * min(1.0, scale)),
            bulk_jobs=_scaled(self.bulk_jobs, scale),
            latency_jobs=_scaled(self.latency_jobs, min(1.0, scale), 50),
            due_jobs=_scaled(self.due_jobs, min(1.0, scale), 20),
            crowd_jobs=_scaled(self.crowd_jobs, scale),
            few_jobs=_scaled(self.few_jobs, min(1.0, scale), 500),
            scheduled_jobs=_scaled(self.scheduled_jobs, scale),
            queued_jobs=_scaled(self.queued_jobs, min(1.0, scale)),
            zero_jobs=_scaled(self.zero_jobs, min(1.0, scale), 3),
            idle_seconds=max(1.0, self.idle_seconds * min(1.0, scale)),
            starts=max(3, round(self.starts * min(1.0, scale))),
        )


def _scaled(count: int, scale: float, least: int = 1_000) -> int:
    return max(least, round(count * scale))
