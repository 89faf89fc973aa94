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


class BrokerCapabilities(Struct, frozen=True, kw_only=True):
    """Which promises a broker keeps beyond those that all keep; the contract suite leaves the others out.

    `ordered`: of one queue, type and priority the oldest ticket comes first, and signals arrive in order.
    `prioritised`: the highest priority comes first.
    `deduplicates`: a job that has a ticket here gets no second one.
    `exact_depths`: depths are exact and cheap to ask for. Otherwise they are estimates, asked for by backlog, which the
    broker remembers for a moment itself.
    `finds_held`: it can say which tickets it holds.
    `epochs`: a loss of its memory shows as another epoch.
    `redelivers`: a ticket that was taken comes again after a while, until it is discarded.
    """

    ordered: bool = True
    prioritised: bool = True
    deduplicates: bool = True
    exact_depths: bool = True
    finds_held: bool = True
    epochs: bool = True
    redelivers: bool = False


class Broker(Protocol):
    """Tickets by queue, type and priority."""

    @property
    def capabilities(self) -> BrokerCapabilities: ...

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Offer the tickets, in order; waiting callers of `take` get them at once."""
        ...

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """Up to `limit` wanted tickets, each given to one caller: highest priority first, then oldest first.

        Types and queues of equal priority take turns. `wanted.expected` says where tickets are likely to come from.
        Waits for the first one, at most `wait`, and returns what there is then. A cancelled call takes no ticket.
        """
        ...

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        """Let these taken tickets not come again: they were looked at.

        To be called after the store has decided about their jobs, never before: the ticket of a caller that dies
        meanwhile has to come again. Brokers that forget a ticket on `take` do nothing.
        """
        ...

    async def depths(self, among: Collection[BacklogKey] | None = None) -> dict[BacklogKey, int]:
        """Tickets held, by queue and type: of these backlogs at least, of all if None. Those without any may be left
        out."""
        ...

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        """The jobs among these whose tickets the broker holds; a ticket that was taken is held no more.

        None of them if it does not know (`finds_held`).
        """
        ...

    async def epoch(self) -> str:
        """A name for this broker's memory: a new name means that every ticket published before may be lost.

        Always the same where a loss does not show (`epochs`).
        """
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
