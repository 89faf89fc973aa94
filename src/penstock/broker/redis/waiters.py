"""Taking tickets, and waiting for them in the server's lines.

The script that finds nothing puts the taker in line, and the script that brings tickets gives them to those in line,
by a message to their process: between the two no ticket can slip past a waiting taker. Whatever comes for a taker that
does not want it any more is put back.
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
    """One call of take. It is stirred when it was given tickets, has to ask again, or has waited enough."""

    def __init__(self, name: str, request: bytes) -> None:
        self.name = name
        self.request = request
        self.given: list[Ticket] = []
        self.again = False
        self.enough = False
        self._stirred = asyncio.Event()

    def wake(self, *, again: bool = False, enough: bool = False) -> None:
        self.again |= again
        self.enough |= enough
        self._stirred.set()

    async def wait(self, until: float) -> None:
        """Return when stirred, at the latest at this time of the loop; then it has waited enough."""
        try:
            async with asyncio.timeout_at(until):
                while not (self.given or self.again or self.enough):
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            self.enough = True


class Waiters:
    """The takes of a process. `process` names it in the lines; `listening` returns once it can be given tickets."""

    def __init__(self, server: RedisClient, base: str, process: str, listening: Callable[[], Awaitable[None]]) -> None:
        self._server = server
        self._base = base
        self._process = process
        self._listening = listening
        self._takers: dict[str, Waiter] = {}
        self._numbers = count()
        self._tasks: set[asyncio.Future[list[Ticket]]] = set()
        self._closed = False

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        taker = Waiter(f"{self._process}.{next(self._numbers)}", wire.request(wanted, limit))
        taking = self._own(self._take(taker, wait))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taker.wake(enough=True)
            # Not before its tickets are back may a taker be gone: the next one is to find them.
            await asyncio.shield(self._own(self._undo(taking)))
            raise

    def give(self, message: bytes) -> None:
        """Tickets that the server gave to one of ours."""
        name, _, text = message.partition(b"\n")
        taker = self._takers.get(name.decode())
        if taker is None:
            self._own(self._put_back(wire.tickets(text)))
        else:
            taker.given += wire.tickets(text)
            taker.wake()

    def ask_again(self) -> None:
        """The lines we stood in may be gone, or what was given to us may not have been heard."""
        for taker in self._takers.values():
            taker.wake(again=True)

    async def close(self) -> None:
        """Every taker leaves its lines and is answered with nothing."""
        self._closed = True
        for taker in self._takers.values():
            taker.wake(enough=True)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _take(self, taker: Waiter, wait: timedelta) -> list[Ticket]:
        self._takers[taker.name] = taker
        try:
            tickets = await self._ask_or_wait(taker, wait)
        finally:
            del self._takers[taker.name]
            # Given while it asked again, and found others or failed.
            await self._put_back(taker.given)
        return await self._put_back(tickets) if self._closed else tickets

    async def _ask_or_wait(self, taker: Waiter, wait: timedelta) -> list[Ticket]:
        if wait <= ZERO:
            return await self._ask(taker, 0)
        until = asyncio.get_running_loop().time() + wait.total_seconds()
        while not (tickets := await self._ask_in_line(taker, until)):
            await taker.wait(until)
            if taker.given or taker.enough:
                return await self._leave(taker)
        return tickets

    async def _ask_in_line(self, taker: Waiter, until: float) -> list[Ticket]:
        await self._listening()
        taker.again = False
        left = until - asyncio.get_running_loop().time()
        return await self._ask(taker, max(1, round(left * 1000)))

    async def _ask(self, taker: Waiter, wait_millis: int) -> list[Ticket]:
        answer = await self._server.run(scripts.TAKE, self._base, taker.request, taker.name, wait_millis)
        return wire.tickets(answer)

    async def _leave(self, taker: Waiter) -> list[Ticket]:
        """What it was given. One that stands in no line any more was given something that is still on its way."""
        if not taker.given and not await self._server.run(scripts.LEAVE, self._base, taker.name):
            taker.enough = taker.again = False
            await taker.wait(asyncio.get_running_loop().time() + self._server.deadline.total_seconds())
        given, taker.given = taker.given, []
        return given

    async def _undo(self, taking: Awaitable[list[Ticket]]) -> list[Ticket]:
        with suppress(BrokerUnavailable):
            return await self._put_back(await taking)
        return []

    async def _put_back(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Nothing is left. What cannot be put back is lost, as tickets may be: they lapse and are posted again."""
        if tickets:
            with suppress(BrokerUnavailable):
                await self._server.run(scripts.PUT_BACK, self._base, *wire.lanes(reversed(tickets)))
        return []

    def _own(self, work: Awaitable[list[Ticket]]) -> asyncio.Future[list[Ticket]]:
        """Work that goes on when its caller is cancelled, and that a close waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
