"""Cron expressions, and the wall-clock times they name. Pure, without a time zone: `model.ticks` makes them instants.

Five fields (minute hour day-of-month month day-of-week), six with seconds first, or `@daily` and its like. A field is a
list of values, ranges and steps; months and weekdays may be named; `L` is the month's last day, `LW` its last working
day, `FRI#2` the second Friday, `5L` the last one. When both days are restricted either may match, as in every cron.
"""

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from penstock.model.errors import Invalid

SHORTHANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)

_LONGEST = 250
_YEARS = 41
"""The rarest day there is, a 29 February of a given weekday, can be 40 years away."""
_LAST_YEAR = 9998
_LAST = -1
_DAY = timedelta(days=1)


class Calendar(Struct, frozen=True, kw_only=True):
    """What an expression names: times of the day, on days. `nth` holds (weekday, which one of the month).

    `by_elapsed_time`: it recurs within the day, with a star in hour or minute, rather than at times of its own.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    last_day: bool
    last_working_day: bool
    both_days: bool
    by_elapsed_time: bool

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def next_wall(self, after: datetime) -> datetime | None:
        """The first wall time it names strictly after one, both naive and in whole seconds; None if there is none."""
        if self._names(after):
            at = self._later_that_day(after.hour, after.minute, after.second)
            if at is not None:
                return datetime.combine(after, at)
        day = self._next_day(after.date())
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def _later_that_day(self, hour: int, minute: int, second: int) -> time | None:
        if hour in self.hours:
            if minute in self.minutes and (later := _after(second, self.seconds)) is not None:
                return time(hour, minute, later)
            if (later := _after(minute, self.minutes)) is not None:
                return time(hour, later, self.seconds[0])
        if (later := _after(hour, self.hours)) is not None:
            return time(later, self.minutes[0], self.seconds[0])
        return None

    def _next_day(self, after: date) -> date | None:
        day, until = after + _DAY, min(after.year + _YEARS, _LAST_YEAR)
        while day.year <= until:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=31)).replace(day=1)
            elif self._names(day):
                return day
            else:
                day += _DAY
        return None

    def _names(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        if self.both_days:
            return self._by_date(day) and self._by_weekday(day)
        return self._by_date(day) or self._by_weekday(day)

    def _by_date(self, day: date) -> bool:
        if day.day in self.days:
            return True
        if day.day < 26 or not (self.last_day or self.last_working_day):
            return False
        last = monthrange(day.year, day.month)[1]
        return (self.last_day and day.day == last) or (self.last_working_day and day.day == _working_day(day, last))

    def _by_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in self.weekdays or not self.nth:
            return weekday in self.weekdays
        last = day.day + 7 > monthrange(day.year, day.month)[1]
        return (weekday, (day.day + 6) // 7) in self.nth or (last and (weekday, _LAST) in self.nth)


@lru_cache(4096)
def parse(expression: str) -> Calendar:
    """The calendar of an expression; Invalid, naming the field that is wrong, when it is malformed or never happens."""
    if len(expression) > _LONGEST:
        raise Invalid(f"cron: an expression has at most {_LONGEST} characters, not {len(expression)}")
    calendar = _calendar(_fields(expression))
    # From a fixed day, so that the same expression is refused always or never.
    if calendar.next_wall(datetime(2000, 1, 1)) is None:  # noqa: DTZ001
        raise Invalid(f"cron: {expression!r} never happens: no month has such a day; change day-of-month or month")
    return calendar


def _after(value: int, ordered: tuple[int, ...]) -> int | None:
    return next((later for later in ordered if later > value), None)


def _working_day(day: date, last: int) -> int:
    """The date of the month's last day that is neither Saturday nor Sunday."""
    return last - max(0, day.replace(day=last).isoweekday() - 5)


class _Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_SECONDS, _MINUTES, _HOURS = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DATES = _Field("day-of-month", 1, 31)
_MONTHS = _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"))
_WEEKDAYS = _Field("day-of-week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_NTH = re.compile(r"(?P<day>\w+)(#(?P<which>[1-5])|(?P<last>L))")


def _fields(expression: str) -> list[str]:
    """The six fields, in capitals."""
    fields = SHORTHANDS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) == 5:
        return ["0", *fields]
    if len(fields) != 6:
        known = " ".join(SHORTHANDS)
        raise Invalid(f"cron: {expression!r} is not 5 fields, 6 with seconds first, or one of {known}")
    return fields


def _calendar(fields: list[str]) -> Calendar:
    second, minute, hour, day, month, weekday = fields
    dates, weekdays, hours = day.split(","), weekday.split(","), _values(_HOURS, hour.split(","))
    return Calendar(
        seconds=_values(_SECONDS, second.split(",")),
        minutes=_values(_MINUTES, minute.split(",")),
        hours=hours,
        days=frozenset(_values(_DATES, [item for item in dates if item not in ("L", "LW")])),
        months=frozenset(_values(_MONTHS, month.split(","))),
        weekdays=frozenset(
            value % 7 for value in _values(_WEEKDAYS, [item for item in weekdays if not _NTH.fullmatch(item)])
        ),
        nth=frozenset(_nth(weekdays)),
        last_day="L" in dates,
        last_working_day="LW" in dates,
        both_days=day.startswith("*") or weekday.startswith("*"),
        by_elapsed_time=minute.startswith("*") or hour.startswith("*") or len(hours) == 24,
    )


def _nth(items: list[str]) -> Iterator[tuple[int, int]]:
    for item in items:
        if found := _NTH.fullmatch(item):
            yield _value(_WEEKDAYS, found["day"]) % 7, int(found["which"] or _LAST)


def _values(field: _Field, items: list[str]) -> tuple[int, ...]:
    return tuple(sorted({value for item in items for value in _range(field, item)}))


def _range(field: _Field, item: str) -> range:
    """The values of `*`, `a`, `a-b`, and of each with a `/step`."""
    span, slash, step = item.partition("/")
    first, dash, last = span.partition("-")
    if span == "*":
        low, high = field.low, field.high
    else:
        low = _value(field, first)
        high = _value(field, last) if dash else field.high if slash else low
    if high < low:
        raise Invalid(f"cron: {field.name} {item!r} runs backwards; write it as two ranges with a comma")
    return range(low, high + 1, _step(field, step) if slash else 1)


def _step(field: _Field, text: str) -> int:
    most = field.high - field.low + (0 if field is _WEEKDAYS else 1)
    if not _is_number(text) or not 1 <= int(text) <= most:
        raise Invalid(f"cron: {field.name} has a step of {text!r}: use 1 to {most}, or an interval")
    return int(text)


def _value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not _is_number(text) or not field.low <= int(text) <= field.high:
        raise Invalid(f"cron: {field.name} {text!r} is not {_choices(field)}")
    return int(text)


def _choices(field: _Field) -> str:
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"a number from {field.low} to {field.high}{names}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
