"""Time as Penstock sees it: aware datetimes, whole milliseconds at rest, and a clock that is passed in."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Protocol, TypeVar

from msgspec import Meta

T = TypeVar("T")

Instant = Annotated[datetime, Meta(tz=True)]
"""A time on the wire: RFC 3339, always with an offset."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Clock(Protocol):
    """The only source of time. Wall time names instants; monotonic time measures waits and leases."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow, from an arbitrary start."""
        ...

    async def sleep(self, span: timedelta) -> None:
        """Return after `span` of monotonic time."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(span.total_seconds())


def to_millis(at: datetime) -> int:
    """Whole milliseconds since the epoch; what the stores keep."""
    return (at - EPOCH) // MILLISECOND


def from_millis(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def millis(span: timedelta) -> int:
    return span // MILLISECOND


def seconds(value: float) -> timedelta:
    """A duration as the wire writes it (`…_seconds`)."""
    return timedelta(seconds=value)


async def within(span: timedelta, awaitable: Awaitable[T]) -> T | None:
    """The awaited value, or None once `span` has passed; the awaited thing is then cancelled."""
    try:
        async with asyncio.timeout(span.total_seconds()):
            return await awaitable
    except TimeoutError:
        return None
