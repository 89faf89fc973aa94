"""Arrivals: queues in which jobs have just become due, here or (by a bell) in another process."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.model.lifecycle import Event, State

ArrivalListener = Callable[[frozenset[str]], None]


class Arrivals:
    """Tells whoever starts workers. A hint: whoever misses one sees the jobs at the next look into the store."""

    def __init__(self) -> None:
        self._listeners: list[ArrivalListener] = []
        self.on_arrival: ArrivalListener = lambda _: None

    def listen(self, listener: ArrivalListener) -> Callable[[], None]:
        """Call this with the names of queues; what comes back ends it."""
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def observe(self, events: Sequence[Event]) -> None:
        self.publish(frozenset(event.queue for event in events if event.after is State.QUEUED))

    def publish(self, queues: frozenset[str]) -> None:
        """It happened here."""
        if queues:
            self.receive(queues)
            self.on_arrival(queues)

    def receive(self, queues: frozenset[str]) -> None:
        """It happened, here or elsewhere."""
        for listener in self._listeners:
            listener(queues)
