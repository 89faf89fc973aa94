"""Durations as users write them in code or in a file: a timedelta, seconds, or text such as `1m30s`."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from penstock.model.errors import Invalid

if TYPE_CHECKING:
    Span: TypeAlias = timedelta | float | str
else:
    # The forms allowed in JSON: a struct that holds a Span converts it to seconds when it is made.
    Span = float | str

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_SECONDS = 31_536_000.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def span_seconds(name: str, value: Span) -> float:
    """A span in seconds, from zero to a year; Invalid, naming the field, if it is not one."""
    found = _seconds(value)
    if found is None:
        raise Invalid(f"{name}: {value!r} is not a span of time; write seconds, or units such as 250ms, 5s, 1h30m")
    if not 0 <= found <= LONGEST_SECONDS:
        raise Invalid(f"{name}: {value!r} is out of range; give from 0 seconds to a year")
    return found


def settled(value: Span) -> float:
    """The seconds of a span of a struct, which has converted it when it was made."""
    if not isinstance(value, float):
        raise TypeError(f"{value!r} was not turned into seconds")
    return value


def _seconds(value: Span) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        parts = _PART.findall(value) if _WHOLE.fullmatch(value) else ()
        return sum(float(number) * UNITS[unit] for number, unit in parts) if parts else None
    return float(value)
