"""The broker inside the process: tickets in memory, shared by everything on one event loop."""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from datetime import timedelta

from msgspec import Struct

from penstock.broker.seam import SignalMessage
from penstock.broker.subscribers import Subscribers
from penstock.model.ids import JobId
from penstock.model.job import PRIORITIES, BacklogKey, Ticket
from penstock.model.workers import WorkRequest

Level = dict[BacklogKey, deque[Ticket]]

ZERO = timedelta(0)


class MemoryBroker:
    """Tickets in lanes, one for each queue and type: oldest first in a lane, turn by turn between lanes.

    Waiting takers are served in the order they came. A job that has a ticket here is not given a second one.
    """

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(8)
        self._queues = TicketQueues()
        self._takers: dict[str, dict[LocalWaiter, None]] = {}
        self._bells = Subscribers()
        self._closed = False

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        if not self._closed:
            self._offer(self._queues.append(tickets))

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        tickets = self._queues.take(wanted, limit)
        if tickets or self._closed or wait <= ZERO:
            return tickets
        return await self._wait(wanted, limit, wait)

    async def depths(self) -> dict[BacklogKey, int]:
        return dict(self._queues.depths)

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        return self._queues.find_held.intersection(jobs)

    async def epoch(self) -> str:
        return self._epoch

    async def send_signal(self, bell: str, message: bytes = b"") -> None:
        self._bells.deliver(SignalMessage(bell, message))

    def listen(self, bells: Collection[str]) -> AsyncIterator[SignalMessage]:
        return self._bells.listen(bells)

    async def close(self) -> None:
        self._closed = True
        self._bells.close()
        self._queues = TicketQueues()
        for takers in list(self._takers.values()):
            for taker in list(takers):
                self._answer(taker, [])

    def lose(self) -> None:
        """For tests: forget every ticket, as a broker that was killed does. Waiting takers go on waiting."""
        self._epoch = secrets.token_hex(8)
        self._queues = TicketQueues()

    async def _wait(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        loop = asyncio.get_running_loop()
        taker = LocalWaiter(wanted, limit, loop.create_future())
        self._enlist(taker)
        # The deadline answers instead of cancelling, so that it cannot meet tickets that are already on their way.
        deadline = loop.call_later(wait.total_seconds(), self._answer, taker, [])
        try:
            return await taker.answer
        except asyncio.CancelledError:
            self._dismiss(taker)
            self._put_back(taker)
            raise
        finally:
            deadline.cancel()

    def _offer(self, fresh: Sequence[Ticket]) -> None:
        """Serve waiting takers from tickets that have just come; whatever was held before, none of them wanted."""
        if not self._takers:
            return
        left = Counter(ticket.type for ticket in fresh)
        for type_name in list(left):
            for taker in list(self._takers.get(type_name, ())):
                if not left[type_name]:
                    break
                left.subtract(ticket.type for ticket in self._serve(taker))

    def _serve(self, taker: "LocalWaiter") -> list[Ticket]:
        # One that was cancelled and has not woken yet still stands in line.
        tickets = [] if taker.answer.done() else self._queues.take(taker.wanted, taker.limit)
        if tickets:
            self._answer(taker, tickets)
        return tickets

    def _answer(self, taker: "LocalWaiter", tickets: list[Ticket]) -> None:
        self._dismiss(taker)
        if not taker.answer.done():
            taker.answer.set_result(tickets)

    def _put_back(self, taker: "LocalWaiter") -> None:
        """A taker cancelled after it was answered and before it woke has taken none."""
        if taker.answer.done() and not taker.answer.cancelled() and not self._closed:
            self._offer(self._queues.put_back(taker.answer.result()))

    def _enlist(self, taker: "LocalWaiter") -> None:
        for type_name in taker.wanted.types:
            self._takers.setdefault(type_name, {})[taker] = None

    def _dismiss(self, taker: "LocalWaiter") -> None:
        for type_name in taker.wanted.types:
            takers = self._takers.get(type_name, {})
            takers.pop(taker, None)
            if not takers:
                self._takers.pop(type_name, None)


class LocalWaiter(Struct, frozen=True, eq=False):
    """One call of take that waits."""

    wanted: WorkRequest
    limit: int
    answer: asyncio.Future[list[Ticket]]


class TicketQueues:
    """The tickets held: at each priority the lanes that are not empty, the one whose turn it is first."""

    def __init__(self) -> None:
        self.depths: dict[BacklogKey, int] = {}
        self._levels: list[Level] = [{} for _ in range(PRIORITIES)]
        self.find_held: set[JobId] = set()

    def append(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Put tickets at the ends of their lanes, and give them back without those of jobs that are held already."""
        fresh = []
        for line, ticket in self._admit(tickets):
            line.append(ticket)
            fresh.append(ticket)
        return fresh

    def put_back(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Put tickets at the heads of their lanes, in the order they were taken; otherwise as `append`."""
        fresh = []
        for line, ticket in self._admit(reversed(tickets)):
            line.appendleft(ticket)
            fresh.append(ticket)
        return fresh

    def take(self, wanted: WorkRequest, limit: int) -> list[Ticket]:
        """Remove up to `limit` wanted tickets, highest priority first."""
        tickets: list[Ticket] = []
        for priority in range(PRIORITIES - 1, -1, -1):
            level = self._levels[priority]
            if level and len(tickets) < limit:
                lanes = [lane for lane in level if wanted.wants(*lane, priority)]
                tickets += self._share(level, lanes, limit - len(tickets))
        self.find_held.difference_update([ticket.job for ticket in tickets])
        return tickets

    def _admit(self, tickets: Iterable[Ticket]) -> Iterator[tuple[deque[Ticket], Ticket]]:
        """Each ticket whose job is not held yet, counted, with the line it belongs in."""
        for ticket in tickets:
            if ticket.job not in self.find_held:
                self.find_held.add(ticket.job)
                level, lane = self._levels[ticket.priority], ticket.line
                self.depths[lane] = self.depths.get(lane, 0) + 1
                yield level.get(lane) or level.setdefault(lane, deque()), ticket

    def _share(self, level: Level, lanes: list[BacklogKey], room: int) -> list[Ticket]:
        """Fill `room` from these lanes in equal parts, as far as they reach."""
        tickets: list[Ticket] = []
        while lanes and (left := room - len(tickets)) > 0:
            part = max(1, left // len(lanes))
            for lane in lanes[:left]:
                tickets += self._pop(level, lane, part)
            lanes = [lane for lane in lanes if lane in level]
        return tickets

    def _pop(self, level: Level, lane: BacklogKey, part: int) -> list[Ticket]:
        line = level.pop(lane)
        tickets = [line.popleft() for _ in range(min(part, len(line)))]
        if line:
            # Inserted anew, the lane is the last: the next turn is another's.
            level[lane] = line
        self._lower(lane, len(tickets))
        return tickets

    def _lower(self, lane: BacklogKey, count: int) -> None:
        self.depths[lane] -= count
        if not self.depths[lane]:
            del self.depths[lane]
