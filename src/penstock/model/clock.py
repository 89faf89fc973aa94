"""Time as Penstock sees it: aware datetimes, whole milliseconds at rest, and a clock that is passed in."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Protocol, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from penstock.model.errors import Invalid

T = TypeVar("T")

Instant = Annotated[datetime, Meta(tz=True)]
"""A time on the wire: RFC 3339, always with an offset. Structs of requests check theirs with `check_instants`."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

EARLIEST = EPOCH
LATEST = datetime(2999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""The range of instants that are accepted and kept, far enough from `datetime.max` for every delay, jitter and offset.

The CHECK constraints of the stores repeat it.
"""


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

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(span.total_seconds())


def to_millis(at: datetime) -> int:
    """Whole milliseconds since the epoch; what the stores keep."""
    return (at - EPOCH) // MILLISECOND


def from_millis(millis: int) -> datetime:
    """The instant, clamped to the accepted range: one row out of range must not make a whole page unreadable."""
    if 0 <= millis <= _LATEST_MILLIS:
        return EPOCH + timedelta(milliseconds=millis)
    return EARLIEST if millis < 0 else LATEST


_LATEST_MILLIS = to_millis(LATEST)


def utc(name: str, at: datetime) -> datetime:
    """The instant in UTC; Invalid, naming the field, if it has no offset or is out of the accepted range."""
    if at.utcoffset() is None:
        raise Invalid(f"{name}: {at.isoformat()} has no time zone; add an offset, such as Z")
    if not EARLIEST <= at <= LATEST:
        raise Invalid(f"{name}: {at.isoformat()} is out of range; give an instant from 1970 to 2999")
    return at.astimezone(UTC)


def check_instants(struct: Struct, *fields: str) -> None:
    """For `__post_init__`: bring these fields of a new struct to UTC; Invalid names one that is out of range."""
    for field in fields:
        at = getattr(struct, field)
        if isinstance(at, datetime):
            force_setattr(struct, field, utc(_wire_name(struct, field), at))


def _wire_name(struct: Struct, field: str) -> str:
    return struct.__struct_encode_fields__[struct.__struct_fields__.index(field)]


def millis(span: timedelta) -> int:
    return span // MILLISECOND


def seconds(value: float) -> timedelta:
    """A duration as the wire writes it (`…_seconds`)."""
    return timedelta(seconds=value)


async def within(span: timedelta, awaitable: Awaitable[T]) -> T | None:
    """The awaited value, or None once `span` has passed; the awaitable is then cancelled."""
    try:
        async with asyncio.timeout(span.total_seconds()):
            return await awaitable
    except TimeoutError:
        return None
