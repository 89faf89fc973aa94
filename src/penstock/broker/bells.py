"""Who listens to which bell in this process."""

import asyncio
from collections.abc import Collection
from typing import Self
from weakref import WeakSet

from penstock.broker.seam import Rung

UNHEARD_MAX = 1000
"""A listener that falls further behind is told that it missed something instead."""


class Listener:
    """What is rung, one by one, from the moment it was made until the broker is closed."""

    def __init__(self, bells: Collection[str]) -> None:
        self.bells = frozenset(bells)
        self._unheard: asyncio.Queue[Rung | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Rung:
        rung = await self._unheard.get()
        if rung is None:
            self.end()
            raise StopAsyncIteration
        return rung

    def tell(self, rung: Rung) -> None:
        rungs = [rung]
        if self._unheard.qsize() >= UNHEARD_MAX:
            self._forget_unheard()
            rungs = [Rung(bell) for bell in sorted(self.bells)]
        for one in rungs:
            self._unheard.put_nowait(one)

    def end(self) -> None:
        self._unheard.put_nowait(None)

    def _forget_unheard(self) -> None:
        while not self._unheard.empty():
            self._unheard.get_nowait()


class Bells:
    """The listeners of one broker. One that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._listeners: WeakSet[Listener] = WeakSet()
        self._closed = False

    def listen(self, bells: Collection[str]) -> Listener:
        listener = Listener(bells)
        self._listeners.add(listener)
        if self._closed:
            listener.end()
        return listener

    def ring(self, rung: Rung) -> None:
        for listener in list(self._listeners):
            if rung.bell in listener.bells:
                listener.tell(rung)

    def close(self) -> None:
        """Every listener comes to its end, once it has heard what was rung before. May be repeated."""
        if not self._closed:
            self._closed = True
            for listener in list(self._listeners):
                listener.end()
