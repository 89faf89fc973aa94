"""Compact tables: columns as wide as they must be, numbers to the right, nothing drawn around them."""

from collections.abc import Sequence

import click

from penstock.cli.ink import dim, say

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
