"""What every broker promises. `penstock.testing.broker_contract` holds each backend to it.

A broker may lose, double, delay and reorder tickets; the store sorts it out at the claim. What it must not do is hand a
ticket to a subscription that does not want it, or keep a waiting subscriber asleep while it holds a ticket for it.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest


class SignalMessage(Struct, frozen=True):
    """A bell that was rung, and what was called out with it; empty also where rings may have been missed."""

    signal: str
    message: bytes = b""


class Broker(Protocol):
    """Tickets by queue, type and priority."""

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Offer the tickets, in order; waiting subscribers get them at once."""
        ...

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """Up to `limit` tickets that are wanted, each given to one taker: highest priority first, then oldest first.

        Waits for the first one, at most `wait`; then answers with what there is. A taker that is cancelled takes none.
        """
        ...

    async def depths(self) -> dict[BacklogKey, int]:
        """Tickets held, by queue and type; lines without any may be left out."""
        ...

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        """Those of the jobs whose tickets are held; what a taker was given is not."""
        ...

    async def epoch(self) -> str:
        """A name for this broker's memory: another one means that every ticket published before may be lost."""
        ...

    async def send_signal(self, bell: str, message: bytes = b"") -> None:
        """Wake everyone who listens to this bell, in every process that shares the broker. A hint: it may be lost."""
        ...

    def listen(self, bells: Collection[str]) -> AsyncIterator[SignalMessage]:
        """What is rung from now on, until the broker is closed.

        Where rings may have been missed (a connection lost and found again) each bell is given once, with no message.
        """
        ...

    async def close(self) -> None:
        """Waiting takers are answered with nothing, and listeners come to their end."""
        ...
