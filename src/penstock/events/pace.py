"""The load that a sink is given by one relay: its share of the limits, and the pace of messages."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from penstock.model.clock import Clock, seconds
from penstock.model.subscriptions import DeliveryLimits

SHORTEST_WAIT: Final = timedelta(milliseconds=5)
"""Messages that are due within it go together: timers are no finer."""


def share_limits(limits: DeliveryLimits, relays: int) -> DeliveryLimits:
    """The part of a subscription's limits that one of so many relays may use; one message at a time at least."""
    per_second = None if limits.per_second is None else limits.per_second / max(relays, 1)
    return replace(limits, in_flight=max(1, limits.in_flight // max(relays, 1)), per_second=per_second)


class RequestPace:
    """Spaces messages evenly; time that was not used is not made up for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_at = float("-inf")

    async def wait_turn(self, per_second: float | None) -> None:
        """Return when the next message may be sent."""
        if per_second is None:
            return
        now = self._clock.monotonic()
        turn_at = max(self._next_at, now)
        self._next_at = turn_at + 1 / per_second
        if seconds(turn_at - now) > SHORTEST_WAIT:
            await self._clock.sleep(seconds(turn_at - now))
