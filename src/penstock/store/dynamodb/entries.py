"""Entries of the journal as bytes: what jobs have not told yet, in order and grouped; many entries are one item."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.model.clock import from_millis
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.journal import RETYPED, Entry
from penstock.model.lifecycle import Move, State
from penstock.store.dynamodb.items import Untold

EVENT_BYTES = 64
"""What an event takes in an item, at most; besides its reason, and the names of an entry that it begins."""


class EntryRow(Struct, frozen=True, array_like=True, gc=False):
    """One entry. `before` and `after` are empty where there is no such state.

    `ahead` is by how much the number of each job's own entry exceeds the job's version; empty where all are equal. That
    of a retype is no event: readers do not get it.
    """

    at: int
    move: str
    queue: str
    type: str
    before: str
    after: str
    ids: bytes
    versions: list[int]
    attempts: list[int]
    spans: list[int]
    reasons: list[str | None]
    ahead: list[int]

    @property
    def jobs(self) -> int:
        return len(self.versions)

    @property
    def is_event(self) -> bool:
        return self.move != RETYPED

    def numbered(self, number: int) -> Entry:
        """As readers get it."""
        return Entry(
            number=number,
            at=from_millis(self.at),
            move=Move(self.move),
            type=self.type,
            queue=self.queue,
            before=State(self.before) if self.before else None,
            after=State(self.after),
            jobs=list(from_packed(self.ids)),
            versions=self.versions,
            attempts=self.attempts,
            reasons=self.reasons,
        )

    def told(self) -> Iterator[tuple[JobId, int]]:
        """Each job, with the number of its own entry that this one tells."""
        ahead = self.ahead or [0] * self.jobs
        for job, version, more in zip(from_packed(self.ids), self.versions, ahead, strict=True):
            yield job, version + more


class _Placed(NamedTuple):
    """What one job has to tell, where it belongs: by time, then by the job's own number; alike ones side by side."""

    at: int
    number: int
    kind: tuple[str, ...]
    job: JobId
    untold: Untold

    @property
    def place(self) -> tuple[int, int, tuple[str, ...]]:
        return self.at, self.number, self.kind


def entries_of(jobs: Iterable[tuple[JobId, Sequence[Untold]]]) -> list[EntryRow]:
    """Everything these jobs have to tell: what each has, in its order, along the entries and within one."""
    placed = sorted((one for job, untold in jobs for one in _places(job, untold)), key=lambda one: one.place)
    return [_entry_of(list(group)) for _, group in groupby(placed, key=lambda one: one.place)]


def _places(job: JobId, untold: Sequence[Untold]) -> Iterator[_Placed]:
    at = 0
    for one in untold:
        # Processes know the table's clock to some milliseconds: no event of a job is dated before an earlier one.
        at = max(at, one.at)
        if one.move == RETYPED:
            left = (RETYPED, one.queue, one.reason or "", State.RUNNING, "")
            yield _Placed(at, one.number, left, job, one)
            yield _Placed(at, one.number, (RETYPED, one.queue, one.type, "", State.RUNNING), job, one)
        else:
            yield _Placed(at, one.number, (one.move, one.queue, one.type, one.before, one.after), job, one)


def _entry_of(group: Sequence[_Placed]) -> EntryRow:
    untold = [one.untold for one in group]
    move, queue, type_name, before, after = group[0].kind
    reasons = [] if move == RETYPED else [one.reason for one in untold]
    ahead = [one.number - one.version for one in untold]
    return EntryRow(
        at=group[0].at,
        move=move,
        queue=queue,
        type=type_name,
        before=before,
        after=after,
        ids=to_packed(one.job for one in group),
        versions=[one.version for one in untold],
        attempts=[one.attempt for one in untold],
        spans=[one.span for one in untold if one.span is not None],
        reasons=reasons if any(reasons) else [],
        ahead=ahead if any(ahead) else [],
    )


_encode = msgspec.msgpack.Encoder().encode
_rows = msgspec.msgpack.Decoder(list[EntryRow])


def pack_entries(rows: Sequence[EntryRow]) -> bytes:
    return _encode(rows)


def unpack_entries(packed: bytes) -> list[EntryRow]:
    return _rows.decode(packed)


def bytes_of(untold: Iterable[Untold]) -> int:
    """About how many bytes these add to an item of the journal, never fewer."""
    return sum(EVENT_BYTES + len((one.reason or "").encode()) + len(one.queue) + len(one.type) for one in untold)
