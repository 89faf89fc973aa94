"""The subscribers of signals in this process."""

import asyncio
from collections.abc import Collection
from typing import Self
from weakref import WeakSet

from penstock.broker.seam import SignalMessage

UNDELIVERED_MAX = 1000
"""A subscriber with more than this many unread signals gets each of its signals once instead, without a message."""


class LocalSubscriber:
    """An iterator over the signals that are sent from its creation until the broker is closed."""

    def __init__(self, signals: Collection[str]) -> None:
        self.signals = frozenset(signals)
        self._undelivered: asyncio.Queue[SignalMessage | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SignalMessage:
        received = await self._undelivered.get()
        if received is None:
            self.end()
            raise StopAsyncIteration
        return received

    def deliver(self, sent: SignalMessage) -> None:
        messages = [sent]
        if self._undelivered.qsize() >= UNDELIVERED_MAX:
            self._drop_undelivered()
            messages = [SignalMessage(signal) for signal in sorted(self.signals)]
        for one in messages:
            self._undelivered.put_nowait(one)

    def end(self) -> None:
        self._undelivered.put_nowait(None)

    def _drop_undelivered(self) -> None:
        while not self._undelivered.empty():
            self._undelivered.get_nowait()


class Subscribers:
    """The subscribers of one broker, held weakly: one that its owner drops is removed."""

    def __init__(self) -> None:
        self._subscribers: WeakSet[LocalSubscriber] = WeakSet()
        self._closed = False

    def listen(self, signals: Collection[str]) -> LocalSubscriber:
        subscriber = LocalSubscriber(signals)
        self._subscribers.add(subscriber)
        if self._closed:
            subscriber.end()
        return subscriber

    def deliver(self, sent: SignalMessage) -> None:
        for subscriber in list(self._subscribers):
            if sent.signal in subscriber.signals:
                subscriber.deliver(sent)

    def close(self) -> None:
        """End every subscriber after the signals it has not read yet. May be repeated."""
        if not self._closed:
            self._closed = True
            for subscriber in list(self._subscribers):
                subscriber.end()
