"""Which lines of a job's log are new, and where they go: the same for every SQL store. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.model.job import LogLine


class LogEnd(Struct, frozen=True):
    """The last line of a log: its position, the bytes up to and with it, and its number among those of this attempt."""

    position: int = 0
    size: int = 0
    number: int = 0


def new_lines(
    end: LogEnd, lines: Sequence[LogLine], cap: int, first: int | None
) -> Iterator[tuple[int, int, int, LogLine]]:
    """Position, size, number and line of each that is to be kept; without those that were sent before, up to the cap.

    Lines without a number (`first` None) have 0: nobody can tell whether they were sent before.
    """
    known = 0 if first is None else max(0, end.number - first)
    position, size = end.position, end.size
    for index, line in enumerate(lines[known:], known):
        if size >= cap:
            return
        position += 1
        size += len(line.text.encode())
        yield position, size, 0 if first is None else first + index + 1, line
