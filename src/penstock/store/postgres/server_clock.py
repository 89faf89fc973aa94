"""The server's clock as this process knows it: read now and then, and extrapolated with the monotonic clock."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from msgspec import Struct

from penstock.model.clock import Clock, from_millis, seconds
from penstock.model.ids import ShardId
from penstock.store.postgres.migrate import Migration, connect, status
from penstock.store.postgres.statements import load, query

MAX_AGE = timedelta(seconds=1)
"""How long a reading is extrapolated; two clocks drift apart by far less than a millisecond in this time."""


class ClockReading(Struct, frozen=True):
    """A reading of the server's clock, and the monotonic time at which it was taken."""

    told: datetime
    at: float


class ServerClock:
    """Accurate to half a round trip. What must be exact is compared by the server, in its statements."""

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


_SHARD = load("shard")
_SERVER = load("server")


class Inspection(Struct, frozen=True):
    """A database as it stands: which shard it holds, if any yet, what it lacks, and what its server says."""

    shard: ShardId | None
    pending: tuple[Migration, ...]
    writable: bool
    now: datetime


async def inspect(url: str) -> Inspection:
    """Read it in a transaction that could not write. StoreUnavailable if that or its use by this code is impossible."""
    async with connect(url) as connection, connection.transaction():
        await connection.execute(b"SET TRANSACTION READ ONLY")
        stands = await status(connection)
        ((writable, now),) = await query(connection, _SERVER)
        numbers = await query(connection, _SHARD) if stands.applied else []
    shard = next((ShardId(number) for (number,) in numbers), None)
    return Inspection(shard, stands.pending, writable, from_millis(now))
