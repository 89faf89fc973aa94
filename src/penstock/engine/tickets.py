"""Tickets: which jobs get one at once, and when the dispatcher should look.

The broker holds a window of each queue, not its backlog. A job that is due goes there straight from its submit while
the window has room and nobody waits ahead of it in the store; everything else is the dispatcher's.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta

from penstock.broker import Broker
from penstock.config import TimingSettings
from penstock.model.errors import Unavailable
from penstock.model.job import Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import seconds
from penstock.model.workers import Subscription

logger = logging.getLogger("penstock.engine")

NO_TIME = timedelta(0)
POSTED_BY_THEIR_MAKER = frozenset({Move.SUBMIT, Move.TICK})
PUBLISH_WITHIN = timedelta(seconds=2)
"""A broker slower than this is left alone: its tickets lapse and are posted again."""


class Tickets:
    """This process's view of the broker's window. A hint: being wrong costs a delay, never a job."""

    def __init__(self, broker: Broker, timing: TimingSettings) -> None:
        self._broker = broker
        self._timing = timing
        self._backlog: set[str] = set()
        self._windows: dict[str, int] = {}
        self._takers: set[asyncio.Task[list[Ticket]]] = set()
        self.wake = asyncio.Event()

    @property
    def ticket_for(self) -> timedelta:
        return seconds(self._timing.ticket_seconds)

    def window(self, queue: str) -> int:
        """How many tickets the broker may hold for a queue."""
        return self._windows.get(queue, self._timing.window_jobs)

    async def room(self, queues: Iterable[str]) -> dict[str, int]:
        """For each queue, how many jobs may be ticketed at their submit; none where others wait ahead."""
        depths = await self._broker.depths()
        return {
            queue: 0 if queue in self._backlog else max(0, self.window(queue) - depths.get(queue, 0))
            for queue in queues
        }

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Post tickets of jobs that are durably marked. Never fails: what is not posted lapses and is posted again."""
        if not tickets:
            return
        try:
            async with asyncio.timeout(PUBLISH_WITHIN.total_seconds()):
                await self._broker.publish(tickets)
        except (Unavailable, TimeoutError) as trouble:
            logger.warning("broker took none of %d tickets (%s); they are posted again later", len(tickets), trouble)

    def learn(self, backlog: frozenset[str], windows: dict[str, int]) -> None:
        """What the dispatcher saw on its last pass."""
        self._backlog = set(backlog)
        self._windows = windows

    def waits(self, queue: str) -> None:
        """A job of this queue waits in the store for a ticket."""
        self._backlog.add(queue)
        self.wake.set()

    async def take(self, wanted: Subscription, limit: int, wait: timedelta) -> list[Ticket]:
        """Tickets for a subscription, the moment there are any; none after `wait`, or when a pause has changed."""
        tickets = await self._broker.take(wanted, limit, NO_TIME)
        if not tickets and wait > NO_TIME:
            tickets = await self._take_later(wanted, limit, wait)
        if tickets:
            await self._taken({ticket.queue for ticket in tickets})
        return tickets

    async def _take_later(self, wanted: Subscription, limit: int, wait: timedelta) -> list[Ticket]:
        taker = asyncio.ensure_future(self._broker.take(wanted, limit, wait))
        self._takers.add(taker)
        try:
            return await taker
        except asyncio.CancelledError:
            if _cancelling() or not taker.cancelled():
                taker.cancel()
                raise
            return []
        finally:
            self._takers.discard(taker)

    def pauses_changed(self) -> None:
        """Waiting takers must ask again, with what is paused now; the dispatcher must look."""
        for taker in self._takers:
            taker.cancel()
        self.wake.set()

    async def _taken(self, queues: set[str]) -> None:
        """Wake the dispatcher where the window runs low and more wait behind it."""
        if low := self._backlog & queues:
            depths = await self._broker.depths()
            if any(depths.get(queue, 0) * 2 < self.window(queue) for queue in low):
                self.wake.set()

    def heed(self, events: Sequence[Event]) -> None:
        """Jobs that came back to queued or scheduled need the dispatcher."""
        for event in events:
            if event.move in POSTED_BY_THEIR_MAKER:
                continue
            if event.after is State.QUEUED:
                self.waits(event.queue)
            elif event.after is State.SCHEDULED:
                self.wake.set()


def _cancelling() -> bool:
    """True when this very task is being cancelled, not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
