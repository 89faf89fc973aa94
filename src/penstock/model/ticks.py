"""When a schedule ticks. Pure: from an intention and an instant to the instants that follow.

Every process computes the same ticks: intervals are anchored at the epoch, and jitter is a hash of the tick itself.
Ticks are UTC and whole milliseconds, so that a tick that was stored is still the same tick. Where a zone's clock is
changed, a wall time may exist twice or not at all: docs/design/time.md has the rules kept here.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, takewhile
from typing import assert_never
from zoneinfo import ZoneInfo

from msgspec import Struct

from penstock.model import cron
from penstock.model.clock import EPOCH, LATEST, millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import JobId, ShardId, from_bytes
from penstock.model.schedule import Cron, Every

SHORTEST = timedelta(seconds=1)

_MILLISECOND, _SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
_UUID_V7 = (7 << 76) | (2 << 62)


def check(when: Every | Cron, start_at: datetime | None = None, end_at: datetime | None = None) -> None:
    """Return if this can be a schedule; else raise Invalid, naming the field that is wrong and what to do."""
    match when:
        case Every():
            _check_span(when.span)
        case Cron():
            cron.parse(when.expression)
            zone(when.timezone)
        case _:
            assert_never(when)
    if start_at is not None and end_at is not None and end_at <= start_at:
        raise Invalid(f"end_at: {end_at.isoformat()} is not after start_at; choose a later one, or none")


def first_tick(
    when: Every | Cron, now: datetime, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> datetime | None:
    """The first tick of a schedule made now. One that counts from completions begins at once, or at its start."""
    if not counts_from_completion(when):
        return next_tick(when, now, start_at=start_at, end_at=end_at)
    first = _whole(now if start_at is None else max(now, start_at))
    return first if end_at is None or first <= end_at else None


def next_tick(
    when: Every | Cron, after: datetime, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> datetime | None:
    """The first tick strictly after an instant, from `start_at` to `end_at`, both included; None if there is none.

    A schedule that counts from completions takes the completion as `after`. There is no tick after LATEST.
    """
    try:
        tick = _following(when, after, start_at)
    except OverflowError:
        return None
    last = LATEST if end_at is None else min(end_at, LATEST)
    return tick if tick is not None and tick <= last else None


def following(
    when: Every | Cron, after: datetime, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> Iterator[datetime]:
    """Every tick after an instant, in order; possibly without end.

    Where ticks count from completions, each job is taken to end at once."""
    tick = next_tick(when, after, start_at=start_at, end_at=end_at)
    while tick is not None:
        yield tick
        tick = next_tick(when, tick, start_at=start_at, end_at=end_at)


def ticks_between(
    when: Every | Cron,
    after: datetime,
    until: datetime,
    limit: int,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> list[datetime]:
    """The first `limit` ticks after one instant and not later than another, in order."""
    later = following(when, after, start_at=start_at, end_at=end_at)
    return list(islice(takewhile(lambda tick: tick <= until, later), limit))


def preview(
    when: Every | Cron,
    after: datetime,
    count: int,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> list[datetime]:
    """The next `count` ticks, or fewer when the schedule ends."""
    return list(islice(following(when, after, start_at=start_at, end_at=end_at), count))


def counts_from_completion(when: Every | Cron) -> bool:
    """True if a tick is known only once the job before it has ended."""
    return isinstance(when, Every) and when.after_completion


def jittered(at: datetime, name: str, jitter: timedelta) -> datetime:
    """When a tick falls due: at its time or up to `jitter` later, always the same for the same tick."""
    return at + _MILLISECOND * (_digest(name, to_millis(at)) % (millis(jitter) + 1)) if jitter else at


def tick_job_id(schedule_name: str, created_at: datetime, tick_at: datetime, shard: ShardId) -> JobId:
    """The id of a tick's job: the same for the same tick, another for a later schedule of that name.

    An ordinary job id, whose time is the tick's.
    """
    rng = _digest(schedule_name, to_millis(created_at), to_millis(tick_at)) >> 2
    value = (to_millis(tick_at) << 80) | _UUID_V7 | (shard << 64) | rng
    return from_bytes(value.to_bytes(16))


def _following(when: Every | Cron, after: datetime, start_at: datetime | None) -> datetime | None:
    match when:
        case Every(span=span, after_completion=True):
            return _whole(after + span if start_at is None else max(after + span, start_at))
        case Every(span=span):
            steps = to_millis(_no_earlier(after, start_at)) // millis(span) + 1
            return EPOCH + steps * span
        case Cron(expression=expression, timezone=timezone):
            return _next_instant(expression, timezone, _no_earlier(after, start_at))
        case _:
            assert_never(when)


def _no_earlier(after: datetime, start_at: datetime | None) -> datetime:
    """The instant to search after, so that the start itself may be a tick."""
    return after if start_at is None else max(after, start_at - timedelta.resolution)


def _whole(at: datetime) -> datetime:
    """Rounded up: a tick is never early."""
    return EPOCH - (EPOCH - at) // _MILLISECOND * _MILLISECOND


def _check_span(span: timedelta) -> None:
    if span < SHORTEST:
        raise Invalid(f"interval: {span.total_seconds():g} s is too short; use {SHORTEST.total_seconds():g} s or more")
    if span % _MILLISECOND:
        raise Invalid(f"interval: {span.total_seconds()} s is finer than a millisecond; round it")


def _digest(*parts: object) -> int:
    """64 pseudo-random bits."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@lru_cache(1024)
def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name; Invalid when there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid(f"timezone: {name[:80]!r} is not an IANA time zone such as Europe/Berlin") from None


def _next_instant(expression: str, timezone: str, after: datetime) -> datetime | None:
    """The first instant strictly after one at which the expression fires in that zone, in UTC."""
    calendar, where = cron.parse(expression), zone(timezone)
    local = after.astimezone(where)
    wall = local.replace(tzinfo=None, microsecond=0, fold=0)
    overlap = _change_around(where, wall)
    if overlap is None:
        return _first_instant(calendar, where, wall)
    within = _within(overlap, calendar, wall, second_pass=bool(local.fold))
    return within or _first_instant(calendar, where, overlap.ends - _SECOND)


class _Change(Struct, frozen=True):
    """A change of a zone's clock. Wall times from `starts` to before `ends` exist twice, or (`gap`) not at all."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def gap(self) -> bool:
        return self.after > self.before

    @property
    def starts(self) -> datetime:
        return self.at.replace(tzinfo=None) + min(self.before, self.after)

    @property
    def ends(self) -> datetime:
        return self.at.replace(tzinfo=None) + max(self.before, self.after)


def _first_instant(calendar: cron.Calendar, where: ZoneInfo, after: datetime) -> datetime | None:
    """The instant of the next wall time: of two the first, of none the gap's end.

    An expression that runs in every hour loses nothing in a gap, so that it gets no tick at its end.
    """
    wall = calendar.next_wall(after)
    if wall is None:
        return None
    change = _change_around(where, wall)
    if change is None or not change.gap:
        return _utc(wall, _offset(where, wall))
    if calendar.every_hour:
        return _first_instant(calendar, where, change.ends - _SECOND)
    return change.at


def _within(overlap: _Change, calendar: cron.Calendar, wall: datetime, *, second_pass: bool) -> datetime | None:
    """What is left of an overlap: its first pass, and for expressions that go by elapsed time its second too."""
    passes = [] if second_pass else [(wall, overlap.before)]
    if calendar.by_elapsed_time:
        passes.append((wall if second_pass else overlap.starts - _SECOND, overlap.after))
    for after, offset in passes:
        named = calendar.next_wall(after)
        if named is not None and named < overlap.ends:
            return _utc(named, offset)
    return None


def _change_around(where: ZoneInfo, wall: datetime) -> _Change | None:
    """The change because of which this wall time exists twice or not at all; None for all the others."""
    before, after = _offset(where, wall), _offset(where, wall.replace(fold=1))
    if before == after:
        return None
    earliest, latest = _utc(wall, max(before, after)), _utc(wall, min(before, after))
    while latest - earliest > _SECOND:
        middle = (earliest + (latest - earliest) / 2).replace(microsecond=0)
        if middle.astimezone(where).utcoffset() == after:
            latest = middle
        else:
            earliest = middle
    return _Change(latest, before, after)


def _offset(where: ZoneInfo, wall: datetime) -> timedelta:
    return where.utcoffset(wall) or timedelta(0)


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)
