"""A clock that moves only when it is told to."""

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)


class SimulatedClock:
    """Keeps the Clock protocol. Time stands still until `advance` or `set`; then every sleep that is over returns."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now
        self._elapsed = timedelta()
        self._sleepers: list[tuple[timedelta, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    async def sleep(self, span: timedelta) -> None:
        """Return once `span` of simulated time has been passed by `advance`; a span of zero only yields."""
        if span <= timedelta():
            await asyncio.sleep(0)  # noqa: TID251 - the one clock that may: it yields and does not wait
            return
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed + span, awake))
        self._slept.set()
        await awake

    @property
    def sleepers(self) -> int:
        """How many sleeps are still to be woken."""
        return sum(not awake.done() for _, awake in self._sleepers)

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Return once this many sleeps are still to be woken."""
        while self.sleepers < count:
            self._slept.clear()
            await self._slept.wait()

    def advance(self, span: timedelta) -> None:
        """Let time pass, on the wall and on the monotonic clock; wake the sleeps that are over, earliest first."""
        self._now += span
        self._elapsed += span
        self._wake()

    def set(self, now: datetime) -> None:
        """Step the wall clock, in either direction; monotonic time and sleeps do not notice."""
        self._now = now

    def _wake(self) -> None:
        over = sorted((one for one in self._sleepers if one[0] <= self._elapsed), key=lambda one: one[0])
        self._sleepers = [one for one in self._sleepers if one[0] > self._elapsed]
        for _, awake in over:
            if not awake.done():
                awake.set_result(None)
