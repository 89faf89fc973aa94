"""Who listens to which bell in this process."""

import asyncio
from collections.abc import Collection
from typing import Self
from weakref import WeakSet

from penstock.broker.seam import SignalMessage

UNDELIVERED_MAX = 1000
"""A listener that falls further behind is told that it missed something instead."""


class LocalSubscriber:
    """What is rung, one by one, from the moment it was made until the broker is closed."""

    def __init__(self, bells: Collection[str]) -> None:
        self.signals = frozenset(bells)
        self._undelivered: asyncio.Queue[SignalMessage | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SignalMessage:
        rung = await self._undelivered.get()
        if rung is None:
            self.end()
            raise StopAsyncIteration
        return rung

    def deliver(self, rung: SignalMessage) -> None:
        rungs = [rung]
        if self._undelivered.qsize() >= UNDELIVERED_MAX:
            self._drop_undelivered()
            rungs = [SignalMessage(bell) for bell in sorted(self.signals)]
        for one in rungs:
            self._undelivered.put_nowait(one)

    def end(self) -> None:
        self._undelivered.put_nowait(None)

    def _drop_undelivered(self) -> None:
        while not self._undelivered.empty():
            self._undelivered.get_nowait()


class Subscribers:
    """The listeners of one broker. One that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._listeners: WeakSet[LocalSubscriber] = WeakSet()
        self._closed = False

    def listen(self, bells: Collection[str]) -> LocalSubscriber:
        listener = LocalSubscriber(bells)
        self._listeners.add(listener)
        if self._closed:
            listener.end()
        return listener

    def deliver(self, rung: SignalMessage) -> None:
        for listener in list(self._listeners):
            if rung.signal in listener.signals:
                listener.deliver(rung)

    def close(self) -> None:
        """Every listener comes to its end, once it has heard what was rung before. May be repeated."""
        if not self._closed:
            self._closed = True
            for listener in list(self._listeners):
                listener.end()
