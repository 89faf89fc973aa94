"""Which wall-clock times a cron expression names."""

from datetime import date, datetime, timedelta

import pytest

from penstock.model import cron
from penstock.model.errors import Invalid


def walls(expression: str, after: str, count: int) -> list[str]:
    """The next wall times, as text."""
    at, found = datetime.fromisoformat(after), list[str]()
    while len(found) < count:
        named = cron.parse(expression).next_wall(at)
        assert named is not None
        found.append(named.isoformat(" "))
        at = named
    return found


def days(expression: str, year: int, month: int) -> list[int]:
    """The days of a month on which an expression fires."""
    at = cron.parse(expression).next_wall(datetime.fromisoformat(f"{year}-{month:02}-01") - timedelta(seconds=1))
    found = list[int]()
    while at is not None and (at.year, at.month) == (year, month):
        found.append(at.day)
        at = cron.parse(expression).next_wall(datetime.combine(at, datetime.max.time()).replace(microsecond=0))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["2026-01-01 00:20:00", "2026-01-01 00:40:00", "2026-01-01 01:00:00"]),
        ("5/25 1 * * *", ["2026-01-01 01:05:00", "2026-01-01 01:30:00", "2026-01-01 01:55:00"]),
        ("0 22-23,1 * * *", ["2026-01-01 01:00:00", "2026-01-01 22:00:00", "2026-01-01 23:00:00"]),
        ("*/30 59 23 * * *", ["2026-01-01 23:59:00", "2026-01-01 23:59:30", "2026-01-02 23:59:00"]),
        ("0 0 1 jan-mar/2 *", ["2026-03-01 00:00:00", "2027-01-01 00:00:00", "2027-03-01 00:00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00:00", "2026-03-31 00:00:00", "2026-05-31 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00"]),
        ("@monthly", ["2026-02-01 00:00:00", "2026-03-01 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("@daily", ["2026-01-02 00:00:00"]),
        ("@midnight", ["2026-01-02 00:00:00"]),
        ("@Hourly", ["2026-01-01 01:00:00"]),
    ],
)
def test_the_next_times_are_those_the_fields_name(expression: str, expected: list[str]) -> None:
    assert walls(expression, "2026-01-01 00:00:00", len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 * * 0", [1, 8, 15, 22]),
        ("0 0 * * 7", [1, 8, 15, 22]),
        ("0 0 * * sat-sun", None),
        ("0 0 * * 5-7", [1, 6, 7, 8, 13, 14, 15, 20, 21, 22, 27, 28]),
        ("0 0 L * *", [28]),
        ("0 0 LW * *", [27]),
        ("0 0 * * FRI#2", [13]),
        ("0 0 * * 5L", [27]),
        ("0 0 13 * FRI", [6, 13, 20, 27]),
        ("0 0 10,L * SUN#1", [1, 10, 28]),
        ("0 0 */10 * 0", [1]),
    ],
)
def test_days_are_named_by_date_by_weekday_or_by_either(expression: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(Invalid, match="day-of-week 'SAT-SUN' runs backwards"):
            cron.parse(expression)
    else:
        assert days(expression, 2026, 2) == expected


def test_the_last_working_day_is_never_a_weekend() -> None:
    for year, month in ((year, month) for year in range(2020, 2032) for month in range(1, 13)):
        (day,) = days("0 0 LW * *", year, month)
        rest = [date(year, month, day) + timedelta(days=ahead) for ahead in range(1, 4)]
        assert date(year, month, day).isoweekday() <= 5
        assert all(later.month != month or later.isoweekday() > 5 for later in rest)


def test_leap_days_come_when_there_are_leap_years() -> None:
    assert walls("0 0 29 2 *", "2023-01-01", 2) == ["2024-02-29 00:00:00", "2028-02-29 00:00:00"]
    assert walls("0 0 29 2 *", "2096-03-01", 1) == ["2104-02-29 00:00:00"]


def test_the_rarest_day_is_found_across_a_century_without_a_leap_day() -> None:
    assert walls("0 0 29 2 */7", "2032-02-29", 1) == ["2060-02-29 00:00:00"]
    assert walls("0 0 29 2 */7", "2088-02-29", 1) == ["2128-02-29 00:00:00"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 31 2 *", "never happens"),
        ("0 0 30 2 *", "never happens"),
        ("0 0 31 4,6,9,11 *", "never happens"),
        ("", "not 5 fields"),
        ("* * * *", "not 5 fields"),
        ("* * * * * * *", "not 5 fields"),
        ("@reboot", "not 5 fields"),
        ("60 * * * *", "minute '60' is not a number from 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day-of-month '0'"),
        ("* * * 13 *", "month '13' is not a number from 1 to 12 or JAN to DEC"),
        ("* * * * 8", "day-of-week '8'"),
        ("* * * * FOO", "day-of-week 'FOO'"),
        ("* * * * 1#6", "day-of-week '1#6'"),
        ("-1 * * * *", "minute ''"),
        ("1,,2 * * * *", "minute ''"),
        ("5-1 * * * *", "runs backwards"),
        ("*/0 * * * *", "step of '0'"),
        ("*/90 * * * *", "or an interval"),
        ("*/x * * * *", "step of 'X'"),
        ("१ * * * *", "minute"),
        ("1" * 5000 + " * * * *", "at most 250"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_with_the_field(expression: str, words: str) -> None:
    with pytest.raises(Invalid, match=f"^cron: .*{words}"):
        cron.parse(expression)


def test_the_search_ends_with_the_calendar() -> None:
    assert cron.parse("@yearly").next_wall(datetime.fromisoformat("9998-06-01")) is None
