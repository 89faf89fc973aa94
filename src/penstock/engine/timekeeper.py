"""How a scheduler reaches the engine: one interface, kept by `engine.ticks`, and by `scheduler.http` over HTTP."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.model.schedule import Decision
from penstock.model.schedule_wire import Agenda


class SchedulerApi(Protocol):
    """Schedules as a scheduler sees them. Every call may raise Unavailable: nothing may then be assumed, ask again."""

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ..., seen: str | None = None) -> Agenda:
        """What falls due before the shard's now + `slot`, earliest first, at most `limit`.

        With `seen` the answer waits until the schedules are not as that name says any more, at most `wait`.
        """
        ...

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        """Carry out each decision that still holds; False for one that somebody else has made. In order.

        Each is one atomic write. Repeating one that was applied changes nothing.
        """
        ...

    async def close(self) -> None: ...
