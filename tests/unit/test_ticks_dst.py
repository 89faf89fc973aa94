"""Daylight saving, against an oracle that walks UTC minute by minute and knows nothing of cron."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from penstock.model.schedule import Cron
from penstock.model.ticks import next_tick, preview, ticks_between

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST, LAST = datetime(2016, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)

# fmt: off
ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Lagos", "Africa/Windhoek", "America/Anchorage",
    "America/Asuncion", "America/Caracas", "America/Chicago", "America/Havana", "America/Los_Angeles",
    "America/Mexico_City", "America/Miquelon", "America/New_York", "America/Nuuk", "America/Santiago",
    "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut",
    "Asia/Gaza", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Pyongyang", "Asia/Tehran", "Asia/Tokyo",
    "Atlantic/Azores", "Australia/Adelaide", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
    "Europe/Dublin", "Europe/Istanbul", "Europe/London", "Europe/Volgograd", "Pacific/Apia", "Pacific/Auckland",
    "Pacific/Chatham", "Pacific/Fiji",
)
# fmt: on

Matches = Callable[[datetime], bool]

FIXED: dict[str, Matches] = {
    "30 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 30),
    "15,45 0-3 * * *": lambda wall: wall.hour < 4 and wall.minute in (15, 45),
    "@daily": lambda wall: wall.hour == wall.minute == 0,
    "10 0,1,2,23 * * 0": lambda wall: wall.hour in (0, 1, 2, 23) and wall.minute == 10 and wall.weekday() == 6,
    "0 0 2 1 * *": lambda wall: (wall.day, wall.hour, wall.minute) == (1, 2, 0),
}
RECURRING: dict[str, Matches] = {
    "*/15 * * * *": lambda wall: wall.minute % 15 == 0,
    "30 * * * *": lambda wall: wall.minute == 30,
    "*/20 2 * * *": lambda wall: wall.hour == 2 and wall.minute % 20 == 0,
    "0 */2 * * *": lambda wall: wall.hour % 2 == wall.minute == 0,
    "0 0 0-23 * * *": lambda wall: wall.minute == 0,
}
EVERY_HOUR = {"*/15 * * * *", "30 * * * *", "0 0 0-23 * * *"}


def oracle(expression: str, utc: list[datetime], walls: list[datetime]) -> list[datetime]:
    """Every minute of the window at which the expression fires, by looking at each."""
    matches = FIXED.get(expression) or RECURRING[expression]
    ticks, seen, before = [], set[datetime](), walls[0] - MINUTE
    for instant, wall in zip(utc, walls, strict=True):
        fires = matches(wall) and (expression in RECURRING or wall not in seen)
        jumped = expression not in EVERY_HOUR and wall - before > MINUTE
        if fires or (jumped and any(map(matches, skipped(before, wall)))):
            ticks.append(instant)
        seen.add(wall)
        before = wall
    return ticks


def skipped(before: datetime, wall: datetime) -> Iterator[datetime]:
    return (before + MINUTE * ahead for ahead in range(1, (wall - before) // MINUTE))


def wall_of(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The instants at which the clock is changed, by looking four times a day and then at each minute."""
    at, offset = FIRST, FIRST.astimezone(zone).utcoffset()
    while at < LAST:
        at, before = at + 6 * HOUR, offset
        offset = at.astimezone(zone).utcoffset()
        if offset != before:
            minutes = (at - MINUTE * ago for ago in range(361))
            yield next(one for one in minutes if wall_of(one, zone) - wall_of(one - MINUTE, zone) != MINUTE)


def windows(zone: ZoneInfo, rng: random.Random) -> list[tuple[datetime, datetime]]:
    around = [(at - 5 * HOUR, at + 7 * HOUR) for at in changes(zone)]
    days = [FIRST + DAY * rng.randrange(3652) for _ in range(5)]
    return around + [(day, day + DAY) for day in days]


@pytest.mark.slow
@pytest.mark.parametrize("name", ZONES)
def test_ten_years_of_a_zone_tick_as_the_oracle_says(name: str) -> None:
    rng, zone = random.Random(name), ZoneInfo(name)
    for start, end in windows(zone, rng):
        utc = [start + MINUTE * ahead for ahead in range((end - start) // MINUTE)]
        walls = [wall_of(instant, zone) for instant in utc]
        for expression in FIXED | RECURRING:
            expected = oracle(expression, utc, walls)
            when = Cron(expression, name)
            assert ticks_between(when, start - MINUTE, utc[-1], 10_000) == expected, (expression, start)
            for after in rng.sample(utc, 4):
                tick = next((one for one in expected if one > after), None)
                found = next_tick(when, after)
                assert found == tick or (tick is None and found is not None and found >= end), (expression, after)


def test_the_zones_are_forty_and_have_every_kind_of_change() -> None:
    kinds = {
        wall_of(at, ZoneInfo(name)) - wall_of(at - MINUTE, ZoneInfo(name)) - MINUTE
        for name in ("Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Pyongyang")
        for at in changes(ZoneInfo(name))
    }
    assert len(ZONES) >= 40
    assert {HOUR, -HOUR, HOUR / 2, -HOUR / 2, 2 * HOUR, -2 * HOUR} <= kinds


def local(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next ticks as a clock on the wall shows them, with the offset."""
    begin = datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    return [f"{at.astimezone(ZoneInfo(zone)):%d %H:%M%z}" for at in preview(Cron(expression, zone), begin, count)]


BERLIN_SPRING, BERLIN_AUTUMN = "2026-03-29 00:00", "2026-10-25 00:00"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["29 03:00+0200", "30 02:30+0200"]),
        ("0,15,30 2 * * *", ["29 03:00+0200", "30 02:00+0200"]),
        ("*/15 2 * * *", ["29 03:00+0200", "30 02:00+0200"]),
        ("30 2,3 * * *", ["29 03:00+0200", "29 03:30+0200", "30 02:30+0200"]),
        ("30 * * * *", ["29 00:30+0100", "29 01:30+0100", "29 03:30+0200"]),
        ("0 */2 * * *", ["29 03:00+0200", "29 04:00+0200"]),
        ("0 3 * * *", ["29 03:00+0200", "30 03:00+0200"]),
    ],
)
def test_a_time_in_the_gap_fires_once_at_its_end(expression: str, expected: list[str]) -> None:
    assert local(expression, "Europe/Berlin", BERLIN_SPRING, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["25 02:30+0200", "26 02:30+0100"]),
        ("0 30 2 * * *", ["25 02:30+0200", "26 02:30+0100"]),
        ("0,30 2 * * *", ["25 02:00+0200", "25 02:30+0200", "26 02:00+0100"]),
        ("*/30 2 * * *", ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "26 02:00+0100"]),
        ("0 * * * *", ["25 01:00+0200", "25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("0 3 * * *", ["25 03:00+0100", "26 03:00+0100"]),
    ],
)
def test_in_an_overlap_fixed_times_fire_once_and_others_by_elapsed_time(expression: str, expected: list[str]) -> None:
    assert local(expression, "Europe/Berlin", BERLIN_AUTUMN, len(expected)) == expected


def test_a_day_that_was_left_out_ticks_when_it_would_have_ended() -> None:
    assert local("0 12 30 12 *", "Pacific/Apia", "2011-12-29 00:00", 2) == ["31 00:00+1400", "30 12:00+1400"]


def test_midnight_in_a_gap_ticks_when_the_day_begins() -> None:
    assert local("@daily", "America/Havana", "2026-03-07 12:00", 2) == ["08 01:00-0400", "09 00:00-0400"]
