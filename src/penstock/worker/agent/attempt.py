"""In the agent: one attempt, from its claim until its end is recorded."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, Self

from msgspec import Struct

from penstock.model.job import Claim, Lease, LogLine, Progress
from penstock.worker.frames import folder_of

NEVER = float("inf")


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


class Attempt(Struct, eq=False):
    """Times are monotonic seconds. `lease_ends` counts from before the claim or renewal was asked for.

    `inputs` are the paths of its input files by name, once they are here; `place` is where its executor keeps it.
    `lines` are still to be sent, `lines_sent` counts those before them.
    `begun`: it was handed to its handler, or is about to be; `confirmed` is done once the engine has heard so.
    """

    claim: Claim
    scratch: str
    lease_ends: float
    timeout_at: float
    inputs: Mapping[str, str] = {}
    bearer: Bearer | None = None
    place: int = -1
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    lines_sent: int = 0
    reason: StopReason | None = None
    stopped_at: float = 0.0
    kill_at: float = 0.0
    insisted: bool = False
    begun: bool = False
    confirmed: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, claim: Claim, asked_at: float, now: float, scratch: str) -> Self:
        attempt = cls(claim, scratch, asked_at + claim.lease_seconds, NEVER)
        attempt.count_from(now)
        return attempt

    def count_from(self, now: float) -> None:
        """Let its timeout begin."""
        timeout = self.claim.timeout_seconds
        self.timeout_at = NEVER if timeout is None else now + timeout

    @property
    def folder(self) -> str:
        """Where its files are, once it has any."""
        return folder_of(self.scratch, self.claim.job, self.claim.fence)

    @property
    def lease(self) -> Lease:
        return Lease(self.claim.job, self.claim.fence)

    def take_progress(self) -> Lease:
        """The lease with what is new to tell."""
        progress, self.progress = self.progress, None
        return Lease(self.claim.job, self.claim.fence, progress, self.begun)

    def renewed(self, lease: Lease, lease_ends: float) -> None:
        """The engine has heard what the lease said."""
        self.lease_ends = lease_ends
        if self.confirmed is not None and lease.begun and not self.confirmed.done():
            self.confirmed.set_result(None)

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
