"""The server's clock, read from afar: asked for now and then, and counted on from there by a clock that only runs."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from msgspec import Struct

from penstock.model.timing import Clock, seconds

MAX_AGE = timedelta(seconds=1)
"""How long a reading is counted on; two clocks part by far less than a millisecond in this time."""


class ClockReading(Struct, frozen=True):
    """What the server's clock said, and when by the clock that only runs."""

    told: datetime
    at: float


class ServerClock:
    """Right to within half a round trip. What must be exact is judged by the server itself, in its statements."""

    def __init__(self, ask: Callable[[], Awaitable[datetime]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._set: ClockReading | None = None

    async def now(self) -> datetime:
        known = self._set
        if known is None or self._clock.monotonic() - known.at > MAX_AGE.total_seconds():
            known = self._set = await self._read()
        return known.told + seconds(self._clock.monotonic() - known.at)

    async def _read(self) -> ClockReading:
        asked_at = self._clock.monotonic()
        told = await self._ask()
        return ClockReading(told, (asked_at + self._clock.monotonic()) / 2)
