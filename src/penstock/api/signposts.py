"""Where a path leads, found segment by segment instead of by trying one pattern after another."""

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar


class HasPath(Protocol):
    """Anything at a path; `{name}` stands for one whole segment that varies."""

    @property
    def path(self) -> str: ...


Place = TypeVar("Place", bound=HasPath)
Found = tuple[Place, Mapping[str, str]]


class Signposts(Generic[Place]):
    """The places by their paths, of which no two may be alike. A literal segment goes before a varying one."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._literal: dict[str, Place] = {}
        self._start: _Fork[Place] = _Fork()
        for place in places:
            if "{" in place.path:
                self._put_up(place)
            else:
                self._literal[place.path] = place

    def find(self, path: str) -> Found[Place] | None:
        """The place and the varying parts of its path; None if there is none."""
        place = self._literal.get(path)
        return (place, {}) if place is not None else _walk(self._start, path.split("/"), ())

    def _put_up(self, place: Place) -> None:
        fork, names = self._start, []
        for segment in place.path.split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                fork = fork.varied()
            else:
                fork = fork.literal.setdefault(segment, _Fork())
        fork.place = place, tuple(names)


class _Fork(Generic[Place]):
    """Where paths that begin alike part: by a literal segment, or a varying one; `place` is where it ends here."""

    __slots__ = ("literal", "place", "varying")

    def __init__(self) -> None:
        self.literal: dict[str, _Fork[Place]] = {}
        self.varying: _Fork[Place] | None = None
        self.place: tuple[Place, tuple[str, ...]] | None = None

    def varied(self) -> "_Fork[Place]":
        if self.varying is None:
            self.varying = _Fork()
        return self.varying


def _walk(fork: "_Fork[Place]", segments: list[str], parts: tuple[str, ...]) -> Found[Place] | None:
    """Follow the segments from a fork. Where the literal way leads nowhere, the varying one is tried."""
    if not segments:
        return None if fork.place is None else (fork.place[0], dict(zip(fork.place[1], parts, strict=True)))
    segment, *rest = segments
    literal = fork.literal.get(segment)
    if literal is not None and (found := _walk(literal, rest, parts)) is not None:
        return found
    return None if fork.varying is None or not segment else _walk(fork.varying, rest, (*parts, segment))
