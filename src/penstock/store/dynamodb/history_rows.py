"""Rows of the history as bytes: the moves of one queue in one span, added up; and counts that follow from them."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

import msgspec

from penstock.model.clock import from_millis, millis
from penstock.model.job import Count
from penstock.model.journal import NEWEST_SPAN, HistoryRow
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.dynamodb.entries import EntryRow

_SPAN = millis(NEWEST_SPAN)

Kind = tuple[str, str, str | None, str | None, int | None]
"""Type, move, state before, state after, bucket."""

Sums = dict[Kind, tuple[int, int]]
"""Jobs and milliseconds."""

Depths = Counter[tuple[str, str, str]]
"""Jobs by queue, type and state, of the states that are not terminal."""


class Span(NamedTuple):
    """A span of the history of one queue; all in milliseconds. Ordered as the items are."""

    length: int
    at: int
    queue: str

    @property
    def sort_key(self) -> str:
        return f"{self.length:08}#{self.at:013}#{self.queue}"

    @classmethod
    def parse(cls, sort_key: str) -> "Span":
        length, at, queue = sort_key.split("#", 2)
        return cls(int(length), int(at), queue)

    def within(self, coarse: int) -> "Span":
        """The longer span that it lies in."""
        return Span(coarse, self.at - self.at % coarse, self.queue)


def first_key(length: int, at: int) -> str:
    """The least sort key of the spans of a length that do not begin before an instant."""
    return f"{length:08}#{max(at, 0):013}"


def sum_entries(entries: Iterable[EntryRow]) -> dict[Span, Sums]:
    """What entries add to the newest spans."""
    found: dict[Span, Sums] = {}
    for row in entries:
        sums = found.setdefault(span_of(row), {})
        kind = (row.type, row.move, row.before or None, row.after or None)
        if not row.spans:
            add_sums(sums, {(*kind, None): (row.jobs, 0)})
        for spent, jobs in Counter(row.spans).items():
            add_sums(sums, {(*kind, spent.bit_length()): (jobs, spent * jobs)})
    return found


def span_of(row: EntryRow) -> Span:
    return Span(_SPAN, row.at - row.at % _SPAN, row.queue)


def add_sums(to: Sums, more: Mapping[Kind, tuple[int, int]]) -> None:
    for kind, (jobs, spent) in more.items():
        known_jobs, known_spent = to.get(kind, (0, 0))
        to[kind] = known_jobs + jobs, known_spent + spent


def add_depths(depths: Depths, entries: Iterable[EntryRow]) -> None:
    """Count the moved jobs from the state before to the state after."""
    for row in entries:
        for state, jobs in ((row.after, row.jobs), (row.before, -row.jobs)):
            if state and State(state) not in TERMINAL:
                depths[row.queue, row.type, state] += jobs


def history_rows(span: Span, sums: Sums) -> Iterator[HistoryRow]:
    for (type_name, move, before, after, bucket), (jobs, spent) in sums.items():
        yield HistoryRow(
            at=from_millis(span.at),
            span=timedelta(milliseconds=span.length),
            queue=span.queue,
            type=type_name,
            move=move,
            before=None if before is None else State(before),
            after=None if after is None else State(after),
            bucket=bucket,
            jobs=jobs,
            millis=spent,
        )


def counts_of(depths: Depths) -> list[Count]:
    return [Count(queue, type_name, State(state), jobs) for (queue, type_name, state), jobs in depths.items() if jobs]


_encode = msgspec.msgpack.Encoder().encode
_sums = msgspec.msgpack.Decoder(list[tuple[Kind, tuple[int, int]]])
_depths = msgspec.msgpack.Decoder(list[tuple[str, str, str, int]])


def pack_sums(sums: Sums) -> bytes:
    return zlib.compress(_encode(list(sums.items())))


def unpack_sums(packed: bytes) -> Sums:
    return dict(_sums.decode(zlib.decompress(packed)))


def pack_depths(depths: Depths) -> bytes:
    return zlib.compress(_encode([(*line, jobs) for line, jobs in depths.items() if jobs]))


def unpack_depths(packed: bytes) -> Depths:
    return Counter({(queue, kind, state): jobs for queue, kind, state, jobs in _depths.decode(zlib.decompress(packed))})
