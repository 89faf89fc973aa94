"""What commands print: JSON for programs; for people tables, pairs, and times such as `3m ago`, `250 ms`, `1h30m`."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Generic, TypeVar

import click
import msgspec
from msgspec import Struct

from penstock.cli.style import dim, hint, say
from penstock.model.clock import Clock, SystemClock, utc
from penstock.model.errors import Invalid

T = TypeVar("T")

ENCODER = msgspec.json.Encoder(order="deterministic")
PAGE = 500
"""Most items that one request of a listing asks for."""


def print_json(value: object) -> None:
    """Print one JSON document on a line of stdout, in the shapes of the HTTP API."""
    click.echo(ENCODER.encode(value))


class Listing(Struct, Generic[T], frozen=True):
    """The first items of a longer list, at most `limit`, and whether there are more."""

    items: list[T]
    more: bool
    limit: int


def first_items(found: Iterable[T], limit: int) -> Listing[T]:
    """Take the first `limit` items; one more is read to know whether there are more."""
    taken = list(islice(found, limit + 1))
    return Listing(taken[:limit], len(taken) > limit, limit)


def page_size(limit: int) -> int:
    """How many items to ask for at once to list `limit` of them."""
    return min(limit + 1, PAGE)


class Printer:
    """Prints the answers of one command: as JSON with --json, else as text."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def say(self, answer: object, text: str) -> None:
        """Print an answer: as text it is this line."""
        self.show(answer, lambda: say(text))

    def show(self, answer: object, show: Callable[[], object]) -> None:
        """Print an answer: as text by calling `show`."""
        if self.as_json:
            print_json(answer)
        else:
            show()

    def show_list(self, answer: object, items: Sequence[T], show: Callable[[Sequence[T]], object], empty: str) -> None:
        """Print a list: as text by `show`, or `empty` on stderr where there are no items."""
        self.show(answer, lambda: show(items) if items else say(empty, err=True))

    def show_listing(self, name: str, listing: Listing[T], show: Callable[[Sequence[T]], object], empty: str) -> None:
        """Print the first items of a longer list; `name` is what the JSON calls them."""
        self.show_list({name: listing.items, "more": listing.more}, listing.items, show, empty)
        if listing.more and not self.as_json:
            hint(f"there are more than {listing.limit}: see them with --limit")


LONGEST_SECONDS = 315_360_000.0
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_STEPS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def ago(at: datetime | None, clock: Clock | None = None) -> str:
    """How far an instant is from now: `3m ago`, `in 2h`, `now`."""
    if at is None:
        return "-"
    span = ((clock or SystemClock()).now() - at).total_seconds()
    if abs(span) < 1:
        return "now"
    return f"{_rough(span)} ago" if span > 0 else f"in {_rough(-span)}"


def lasted(span: timedelta | None) -> str:
    """A duration, as precise as it is worth: `4 ms`, `1.25 s`, `2m 5s`."""
    if span is None:
        return "-"
    value = span.total_seconds()
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if value < 60 else _two_units(value)


def _rough(value: float) -> str:
    for size, unit in _STEPS:
        if value >= size:
            return f"{value / size:.0f}{unit}"
    return "0s"


def _two_units(value: float) -> str:
    for (size, unit), (small, below) in pairwise(_STEPS):
        if value >= size:
            return f"{value // size:.0f}{unit} {value % size // small:.0f}{below}"
    return f"{value:.0f}s"


def span(text: str) -> float:
    """Read a span, given as seconds (`90`) or with units (`1m30s`, `250ms`), into seconds, as the wire writes it."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        found = float(text)
    elif _WHOLE.fullmatch(text):
        found = sum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
    else:
        raise click.BadParameter(f"{text!r} is not a span of time; write seconds, or units such as 250ms, 90s, 1h30m")
    if found > LONGEST_SECONDS:
        raise click.BadParameter(f"{text!r} is out of range; give at most ten years")
    return found


def instant(text: str) -> datetime:
    """Read a moment in ISO 8601; without a zone it is meant in the local one."""
    try:
        return utc("time", datetime.fromisoformat(text).astimezone())
    except Invalid as error:
        raise click.BadParameter(error.message) from None
    except (ValueError, OverflowError):
        wrong = f"{text!r} is not a time; write it as 2026-11-15T18:00 or 2026-11-15T17:00:00Z"
        raise click.BadParameter(wrong) from None


GAP = "  "


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their heads; the columns named in `right` are aligned to the right."""
    for line in lines(heads, rows, right=right):
        say(line)


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """The table as lines of text, without blanks at their ends."""
    widths = [max(map(_width, column)) for column in zip(heads, *rows, strict=True)]
    sides = [head in right for head in heads]
    return [_line([dim(head) for head in heads], widths, sides), *(_line(row, widths, sides) for row in rows)]


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and their values, one per line."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        first, *rest = value.splitlines() or [""]
        say(f"{dim(name.ljust(width))}{GAP}{first}")
        for line in rest:
            say(f"{'':{width}}{GAP}{line}")


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return GAP.join(map(_pad, cells, widths, right)).rstrip()


def _pad(cell: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(cell))
    return blanks + cell if right else cell + blanks


def _width(cell: str) -> int:
    return len(click.unstyle(cell))
