"""Pollers: long polls of the queues that calls wait for, handed out inside the process."""

import asyncio
from datetime import timedelta

from penstock.broker.memory import MemoryBroker
from penstock.broker.sqs import wire
from penstock.broker.sqs.messages import QueueDeleted, SqsMessages
from penstock.broker.sqs.queues import SqsQueue, SqsQueues
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable
from penstock.model.job import Ticket
from penstock.model.workers import WorkRequest

POLL_WAIT = timedelta(seconds=20)
"""The longest that SQS lets a call wait."""

TURN_WAIT = timedelta(seconds=2)
POLLS_AT_ONCE = 48
"""Fewer than the connections of a client. More queues than this take turns, with shorter waits."""

UNWANTED_PAUSE = timedelta(seconds=1)
"""Before a queue is polled again that gave only tickets which no call wants: else they would go around without end."""


class WaitingTake:
    """One call of `take` that waits."""

    def __init__(self, wanted: WorkRequest, limit: int, taking: asyncio.Task[list[Ticket]]) -> None:
        self.wanted = wanted
        self.limit = limit
        self.taking = taking
        self.error: BrokerUnavailable | None = None

    def fail(self, error: BrokerUnavailable) -> None:
        self.error = error
        self.taking.cancel()


class Pollers:
    """One task for each queue that a call waits for. It is not cancelled when the call ends: SQS may have given it
    messages that would stay invisible. What it receives then is put back.

    Tickets are handed to the waiting calls by a broker inside the process, which holds none for longer than that.
    """

    def __init__(self, queues: SqsQueues, messages: SqsMessages, clock: Clock) -> None:
        self._queues = queues
        self._messages = messages
        self._clock = clock
        self._counter = MemoryBroker()
        self._waiting: dict[WaitingTake, None] = {}
        self._polling: dict[SqsQueue, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(POLLS_AT_ONCE)
        self._listing: asyncio.Task[None] | None = None
        self._closed = False

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """As the seam's, for a call that waits."""
        taking = asyncio.ensure_future(self._counter.take(wanted, limit, wait))
        waiting = WaitingTake(wanted, limit, taking)
        self._waiting[waiting] = None
        for queue in self._queues.known(wanted):
            self._start(queue)
        self._start_listing()
        try:
            return await taking
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._undo(taking)))
            task = asyncio.current_task()
            if waiting.error is not None and task is not None and not task.cancelling():
                raise waiting.error from None
            raise
        finally:
            self._waiting.pop(waiting, None)

    async def offer(self, tickets: list[Ticket]) -> None:
        """Hand tickets to the calls that wait for them, and put the others back."""
        await self._counter.publish(tickets)
        await self._put_back_rest()

    def is_watched(self, queue: SqsQueue) -> bool:
        return queue in self._polling

    def watch(self, queue: SqsQueue) -> None:
        """Poll a queue, which may be new, if a call waits for it."""
        if queue not in self._polling and self._demand(queue):
            self._start(queue)

    async def close(self) -> None:
        """Waiting calls return nothing."""
        self._closed = True
        await self._counter.close()
        tasks = {*self._polling.values(), *([self._listing] if self._listing else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _undo(self, taking: asyncio.Task[list[Ticket]]) -> None:
        """Give the tickets of a call that was cancelled to others; it may have been given them just before."""
        taking.cancel()
        await asyncio.wait({taking})
        await self.offer([] if taking.cancelled() else taking.result())

    def _start(self, queue: SqsQueue) -> None:
        if queue not in self._polling and not self._closed:
            self._polling[queue] = asyncio.ensure_future(self._poll(queue))

    def _start_listing(self) -> None:
        if (self._listing is None or self._listing.done()) and not self._closed:
            self._listing = asyncio.ensure_future(self._list())

    async def _poll(self, queue: SqsQueue) -> None:
        try:
            while not self._closed and (demand := self._demand(queue)):
                if not await self._poll_once(queue, demand):
                    await self._clock.sleep(UNWANTED_PAUSE)
        except QueueDeleted:
            self._queues.forget(queue)
        except BrokerUnavailable as error:
            for waiting in self._waiting_for(queue):
                waiting.fail(error)
        finally:
            del self._polling[queue]

    async def _poll_once(self, queue: SqsQueue, demand: int) -> bool:
        """False if calls wait, and want none of the tickets that came."""
        async with self._at_once:
            wait = POLL_WAIT if len(self._polling) <= POLLS_AT_ONCE else TURN_WAIT
            tickets = await self._messages.receive(queue, min(demand, wire.BATCH_ENTRIES), wait)
        await self._counter.publish(tickets)
        unwanted = self._demand(queue) > 0
        return await self._put_back_rest() < max(1, len(tickets)) or not unwanted

    async def _list(self) -> None:
        """While calls wait, look for queues that other processes create."""
        while self._waiting:
            await self._clock.sleep(self._queues.list_interval)
            try:
                await self._queues.refresh()
            except BrokerUnavailable as error:
                for waiting in list(self._waiting):
                    waiting.fail(error)
            for waiting in list(self._waiting):
                for queue in self._queues.known(waiting.wanted):
                    self._start(queue)

    async def _put_back_rest(self) -> int:
        """Put back what no call waits for; how many tickets."""
        if rest := self._counter.take_rest():
            await self._messages.put_back(rest)
        return len(rest)

    def _demand(self, queue: SqsQueue) -> int:
        return sum(waiting.limit for waiting in self._waiting_for(queue))

    def _waiting_for(self, queue: SqsQueue) -> list[WaitingTake]:
        return [one for one in self._waiting if one.wanted.wants(*queue.key) and not one.taking.done()]
