"""What every broker promises. `penstock.testing.broker_contract` holds each backend to it.

A broker may lose, double, delay and reorder tickets: a claim in the store decides. It must not give a ticket to a
caller that does not want it, nor keep a caller waiting while it holds a ticket that the caller wants.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest


class SignalMessage(Struct, frozen=True):
    """A signal and the message sent with it. The message is also empty where signals may have been missed."""

    signal: str
    message: bytes = b""


class Broker(Protocol):
    """Tickets by queue, type and priority."""

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Offer the tickets, in order; waiting callers of `take` get them at once."""
        ...

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """Up to `limit` wanted tickets, each given to one caller: highest priority first, then oldest first.

        Waits for the first one, at most `wait`, and returns what there is then. A cancelled call takes no ticket.
        """
        ...

    async def depths(self) -> dict[BacklogKey, int]:
        """Tickets held, by queue and type; those without any may be left out."""
        ...

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        """The jobs among these whose tickets the broker holds; a ticket that was taken is held no more."""
        ...

    async def epoch(self) -> str:
        """A name for this broker's memory: a new name means that every ticket published before may be lost."""
        ...

    async def send_signal(self, signal: str, message: bytes = b"") -> None:
        """Wake the subscribers of this signal in every process that shares the broker. A hint: it may be lost."""
        ...

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        """The signals sent from now on, until the broker is closed.

        Where some may have been missed (after a reconnect), each signal is given once, without a message.
        """
        ...

    async def close(self) -> None:
        """Waiting calls of `take` return nothing, and the iterators of `listen` end."""
        ...
