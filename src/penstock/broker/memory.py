"""The broker inside the process: tickets in memory, shared by everything on one event loop."""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from datetime import timedelta

from msgspec import Struct

from penstock.broker.seam import BrokerCapabilities, SignalMessage
from penstock.broker.subscribers import Subscribers
from penstock.model.ids import JobId
from penstock.model.job import PRIORITIES, BacklogKey, Ticket
from penstock.model.workers import WorkRequest

Level = dict[BacklogKey, deque[Ticket]]

ZERO = timedelta(0)


class MemoryBroker:
    """Tickets by queue and type: oldest first within one, round robin between them.

    Waiting callers are served in the order they came. A job that has a ticket here is not given a second one.
    """

    capabilities = BrokerCapabilities()

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(8)
        self._queues = TicketQueues()
        self._waiters: dict[str, dict[LocalWaiter, None]] = {}
        self._subscribers = Subscribers()
        self._closed = False

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        if not self._closed:
            self._offer(self._queues.append(tickets))

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        tickets = self._queues.take(wanted, limit)
        if tickets or self._closed or wait <= ZERO:
            return tickets
        return await self._wait(wanted, limit, wait)

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        """Nothing to do: a ticket that was taken is forgotten."""

    async def depths(self, among: Collection[BacklogKey] | None = None) -> dict[BacklogKey, int]:
        return dict(self._queues.depths)

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        return self._queues.held.intersection(jobs)

    async def epoch(self) -> str:
        return self._epoch

    async def send_signal(self, signal: str, message: bytes = b"") -> None:
        self._subscribers.deliver(SignalMessage(signal, message))

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        return self._subscribers.listen(signals)

    async def close(self) -> None:
        self._closed = True
        self._subscribers.close()
        self._queues = TicketQueues()
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                self._answer(waiter, [])

    def take_rest(self) -> list[Ticket]:
        """Every ticket that no waiting caller wants."""
        rest, self._queues = self._queues.tickets(), TicketQueues()
        return rest

    def lose(self) -> None:
        """For tests: forget every ticket, as a broker does that is killed. Waiting callers go on waiting."""
        self._epoch = secrets.token_hex(8)
        self._queues = TicketQueues()

    async def _wait(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        loop = asyncio.get_running_loop()
        waiter = LocalWaiter(wanted, limit, loop.create_future())
        self._enlist(waiter)
        # The deadline sets a result instead of cancelling: a cancellation could lose tickets that were just given.
        deadline = loop.call_later(wait.total_seconds(), self._answer, waiter, [])
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            self._dismiss(waiter)
            self._put_back(waiter)
            raise
        finally:
            deadline.cancel()

    def _offer(self, fresh: Sequence[Ticket]) -> None:
        """Give new tickets to waiting callers. Older tickets need no look: no waiting caller wanted them."""
        if not self._waiters:
            return
        left = Counter(ticket.type for ticket in fresh)
        for type_name in list(left):
            for waiter in list(self._waiters.get(type_name, ())):
                if not left[type_name]:
                    break
                left.subtract(ticket.type for ticket in self._serve(waiter))

    def _serve(self, waiter: "LocalWaiter") -> list[Ticket]:
        # A cancelled waiter whose task has not run yet is still listed.
        tickets = [] if waiter.answer.done() else self._queues.take(waiter.wanted, waiter.limit)
        if tickets:
            self._answer(waiter, tickets)
        return tickets

    def _answer(self, waiter: "LocalWaiter", tickets: list[Ticket]) -> None:
        self._dismiss(waiter)
        if not waiter.answer.done():
            waiter.answer.set_result(tickets)

    def _put_back(self, waiter: "LocalWaiter") -> None:
        """Put back the tickets of a waiter that was cancelled after it was given them and before its task ran."""
        if waiter.answer.done() and not waiter.answer.cancelled() and not self._closed:
            self._offer(self._queues.put_back(waiter.answer.result()))

    def _enlist(self, waiter: "LocalWaiter") -> None:
        for type_name in waiter.wanted.types:
            self._waiters.setdefault(type_name, {})[waiter] = None

    def _dismiss(self, waiter: "LocalWaiter") -> None:
        for type_name in waiter.wanted.types:
            waiters = self._waiters.get(type_name, {})
            waiters.pop(waiter, None)
            if not waiters:
                self._waiters.pop(type_name, None)


class LocalWaiter(Struct, frozen=True, eq=False):
    """One waiting call of `take`."""

    wanted: WorkRequest
    limit: int
    answer: asyncio.Future[list[Ticket]]


class TicketQueues:
    """The tickets held: for each priority a queue by backlog key, the one whose turn is next first."""

    def __init__(self) -> None:
        self.depths: dict[BacklogKey, int] = {}
        self._levels: list[Level] = [{} for _ in range(PRIORITIES)]
        self.held: set[JobId] = set()

    def append(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Add tickets at the end of their queues; those that were added, without jobs that had one already."""
        fresh = []
        for queue, ticket in self._admit(tickets):
            queue.append(ticket)
            fresh.append(ticket)
        return fresh

    def put_back(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Put tickets back at the head of their queues, in the order they were taken; otherwise as `append`."""
        fresh = []
        for queue, ticket in self._admit(reversed(tickets)):
            queue.appendleft(ticket)
            fresh.append(ticket)
        return fresh

    def take(self, wanted: WorkRequest, limit: int) -> list[Ticket]:
        """Remove up to `limit` wanted tickets, highest priority first."""
        tickets: list[Ticket] = []
        for priority in range(PRIORITIES - 1, -1, -1):
            level = self._levels[priority]
            if level and len(tickets) < limit:
                keys = [key for key in level if wanted.wants(*key, priority)]
                tickets += self._share(level, keys, limit - len(tickets))
        self.held.difference_update([ticket.job for ticket in tickets])
        return tickets

    def tickets(self) -> list[Ticket]:
        """All of them."""
        return [ticket for level in self._levels for queue in level.values() for ticket in queue]

    def _admit(self, tickets: Iterable[Ticket]) -> Iterator[tuple[deque[Ticket], Ticket]]:
        """Each ticket whose job has none here yet, counted, with the queue that it belongs to."""
        for ticket in tickets:
            if ticket.job not in self.held:
                self.held.add(ticket.job)
                level, key = self._levels[ticket.priority], ticket.backlog_key
                self.depths[key] = self.depths.get(key, 0) + 1
                yield level.get(key) or level.setdefault(key, deque()), ticket

    def _share(self, level: Level, keys: list[BacklogKey], room: int) -> list[Ticket]:
        """Up to `room` tickets from these queues, in equal parts as far as their tickets reach."""
        tickets: list[Ticket] = []
        while keys and (left := room - len(tickets)) > 0:
            part = max(1, left // len(keys))
            for key in keys[:left]:
                tickets += self._pop(level, key, part)
            keys = [key for key in keys if key in level]
        return tickets

    def _pop(self, level: Level, key: BacklogKey, part: int) -> list[Ticket]:
        queue = level.pop(key)
        tickets = [queue.popleft() for _ in range(min(part, len(queue)))]
        if queue:
            # Inserted anew, it is the last of its level: its next turn comes after all others.
            level[key] = queue
        self._lower(key, len(tickets))
        return tickets

    def _lower(self, key: BacklogKey, count: int) -> None:
        self.depths[key] -= count
        if not self.depths[key]:
            del self.depths[key]
