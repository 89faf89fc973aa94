"""In the agent: one attempt, from its claim until its end is recorded."""

from enum import StrEnum
from typing import Protocol

from penstock.model.job import Claim, Lease, LogLine, Progress


class StopReason(StrEnum):
    """Why a running attempt is asked to stop."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost its lease"
    UNRENEWED = "could not renew its lease"
    YIELDING = "yielding"


class Bearer(Protocol):
    """Whatever an attempt currently runs in, as far as stopping it goes. Each may be called more than once."""

    def ask(self, attempt: "Attempt") -> None:
        """Ask it to stop by itself."""
        ...

    def insist(self, attempt: "Attempt") -> None:
        """Half of its grace is over."""
        ...

    def kill(self, attempt: "Attempt") -> None:
        """Its grace is over: end it, whatever else that ends."""
        ...


class Attempt:
    """Times are monotonic seconds. `lease_ends` counts from before the claim or renewal was asked for."""

    __slots__ = (
        "bearer", "claim", "folder", "insisted", "kill_at", "lease_ends", "lines", "place", "progress", "reason",
        "stopped_at", "timeout_at",
    )  # fmt: skip

    def __init__(self, claim: Claim, asked_at: float, now: float, folder: str) -> None:
        self.claim = claim
        self.folder = folder
        self.lease_ends = asked_at + claim.lease_seconds
        self.timeout_at = now + (claim.timeout_seconds if claim.timeout_seconds is not None else float("inf"))
        self.bearer: Bearer | None = None
        self.place = -1
        self.progress: Progress | None = None
        self.lines: list[LogLine] = []
        self.reason: StopReason | None = None
        self.stopped_at = self.kill_at = 0.0
        self.insisted = False

    @property
    def lease(self) -> Lease:
        return Lease(self.claim.job, self.claim.fence)

    def take_progress(self) -> Lease:
        """The lease with what is new to tell."""
        progress, self.progress = self.progress, None
        return Lease(self.claim.job, self.claim.fence, progress)

    def stop(self, reason: StopReason, now: float, grace: float) -> None:
        """Begin to stop it; only a loss outranks the reason it is being stopped for already."""
        if reason is StopReason.LOST or self.reason is None:
            self.reason = reason
        if not self.stopped_at:
            self.stopped_at, self.kill_at = now, now + grace
            if self.bearer is not None:
                self.bearer.ask(self)
        self.kill_at = min(self.kill_at, now + grace)

    def __str__(self) -> str:
        return f"job {self.claim.job} ({self.claim.type}, attempt {self.claim.attempt})"
