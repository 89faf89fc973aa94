"""Calls of `take` that wait for tickets, listed on the server.

The script that finds no ticket lists the waiter, and the script that publishes tickets gives them to listed waiters, by
a message to their process. Scripts are atomic, so no ticket stays behind while a waiter wants it. Tickets that arrive
for a waiter that no longer wants them are put back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count

from penstock.broker.redis import scripts, wire
from penstock.broker.redis.client import RedisClient
from penstock.model.errors import BrokerUnavailable
from penstock.model.job import Ticket
from penstock.model.workers import WorkRequest

ZERO = timedelta(0)


class Waiter:
    """One call of `take`. It is woken when it was given tickets, has to ask again, or has waited long enough."""

    def __init__(self, name: str, request: bytes) -> None:
        self.name = name
        self.request = request
        self.given: list[Ticket] = []
        self.again = False
        self.enough = False
        self._woken = asyncio.Event()

    def wake(self, *, again: bool = False, enough: bool = False) -> None:
        self.again |= again
        self.enough |= enough
        self._woken.set()

    async def wait(self, until: float) -> None:
        """Return when woken, at the latest at this time of the event loop."""
        try:
            async with asyncio.timeout_at(until):
                while not (self.given or self.again or self.enough):
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            self.enough = True


class Waiters:
    """The waiters of a process, named `process` on the server. `subscribed` returns once messages can reach it."""

    def __init__(self, server: RedisClient, base: str, process: str, subscribed: Callable[[], Awaitable[None]]) -> None:
        self._server = server
        self._base = base
        self._process = process
        self._wait_subscribed = subscribed
        self._waiters: dict[str, Waiter] = {}
        self._numbers = count()
        self._tasks: set[asyncio.Future[list[Ticket]]] = set()
        self._closed = False

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        waiter = Waiter(f"{self._process}.{next(self._numbers)}", wire.request(wanted, limit))
        taking = self._own(self._take(waiter, wait))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            waiter.wake(enough=True)
            # The call ends only after its tickets are put back, so that the next call finds them.
            await asyncio.shield(self._own(self._undo(taking)))
            raise

    def give(self, message: bytes) -> None:
        """Receive tickets that the server gave to a waiter of this process."""
        name, _, text = message.partition(b"\n")
        waiter = self._waiters.get(name.decode())
        if waiter is None:
            self._own(self._put_back(wire.tickets(text)))
        else:
            waiter.given += wire.tickets(text)
            waiter.wake()

    def ask_again(self) -> None:
        """Let every waiter ask again: the server may have lost its list, or a message of tickets was missed."""
        for waiter in self._waiters.values():
            waiter.wake(again=True)

    async def close(self) -> None:
        """Take every waiter off the list; its call returns nothing."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.wake(enough=True)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _take(self, waiter: Waiter, wait: timedelta) -> list[Ticket]:
        self._waiters[waiter.name] = waiter
        try:
            tickets = await self._ask_or_wait(waiter, wait)
        finally:
            del self._waiters[waiter.name]
            # Given while it asked again, and got others or failed.
            await self._put_back(waiter.given)
        return await self._put_back(tickets) if self._closed else tickets

    async def _ask_or_wait(self, waiter: Waiter, wait: timedelta) -> list[Ticket]:
        if wait <= ZERO:
            return await self._ask(waiter, 0)
        until = asyncio.get_running_loop().time() + wait.total_seconds()
        while not (tickets := await self._ask_and_enlist(waiter, until)):
            await waiter.wait(until)
            if waiter.given or waiter.enough:
                return await self._leave(waiter)
        return tickets

    async def _ask_and_enlist(self, waiter: Waiter, until: float) -> list[Ticket]:
        await self._wait_subscribed()
        waiter.again = False
        left = until - asyncio.get_running_loop().time()
        return await self._ask(waiter, max(1, round(left * 1000)))

    async def _ask(self, waiter: Waiter, wait_millis: int) -> list[Ticket]:
        answer = await self._server.run(scripts.TAKE, self._base, waiter.request, waiter.name, wait_millis)
        return wire.tickets(answer)

    async def _leave(self, waiter: Waiter) -> list[Ticket]:
        """Take the waiter off the list; what it was given. One that is not listed was given tickets on their way."""
        if not waiter.given and not await self._server.run(scripts.LEAVE, self._base, waiter.name):
            waiter.enough = waiter.again = False
            await waiter.wait(asyncio.get_running_loop().time() + self._server.deadline.total_seconds())
        given, waiter.given = waiter.given, []
        return given

    async def _undo(self, taking: Awaitable[list[Ticket]]) -> list[Ticket]:
        with suppress(BrokerUnavailable):
            return await self._put_back(await taking)
        return []

    async def _put_back(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Always empty. Tickets that cannot be put back are lost: they expire and are published again."""
        if tickets:
            with suppress(BrokerUnavailable):
                await self._server.run(scripts.PUT_BACK, self._base, *wire.packed(reversed(tickets)))
        return []

    def _own(self, work: Awaitable[list[Ticket]]) -> asyncio.Future[list[Ticket]]:
        """A task that goes on when its caller is cancelled, and that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
