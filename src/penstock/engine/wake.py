"""A wake-up for several loops at once."""

import asyncio


class WakeUps:
    """Each loop waits on an event of its own, so that none clears it before another has seen it."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def event(self) -> asyncio.Event:
        """One more loop's own."""
        event = asyncio.Event()
        self._events.append(event)
        return event

    def drop(self, event: asyncio.Event) -> None:
        """Its loop has ended."""
        self._events.remove(event)

    def set(self) -> None:
        for event in self._events:
            event.set()
