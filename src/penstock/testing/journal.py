"""A reader of the journals of all shards, which checks what it reads: order, versions, and what history adds up to."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from penstock.model.clock import EARLIEST, LATEST
from penstock.model.ids import JobId, ShardId
from penstock.model.job import Count, Job
from penstock.model.journal import Entry, History, HistoryFilter
from penstock.model.lifecycle import Move, State
from penstock.store.seam import Shard, Store

PAGE = 100
Line = tuple[str, str, State]
"""Queue, type and state."""


class Told(NamedTuple):
    """One event of a job, as a reader is told it."""

    version: int
    move: Move
    before: State | None
    after: State
    attempt: int = 0
    reason: str | None = None


class JournalReader:
    """Reads on from where it was, as a relay does, and keeps every event by its job."""

    def __init__(self, store: Store) -> None:
        self.entries: list[Entry] = []
        self.told: dict[JobId, list[Told]] = {}
        self._store = store
        self._after: dict[ShardId, int] = {}

    async def read(self, limit: int = PAGE) -> list[Entry]:
        """The new entries of all shards."""
        found = [entry for shard in self._store.shards() for entry in await self._read_shard(shard, limit)]
        for entry in found:
            for job, version, attempt, reason in entry.events():
                told = Told(version, entry.move, entry.before, entry.after, attempt, reason)
                self.told.setdefault(job, []).append(told)
        self.entries += found
        return found

    async def _read_shard(self, shard: Shard, limit: int) -> list[Entry]:
        after = self._after.get(shard.shard, 0)
        head = await shard.number_entries()
        found: list[Entry] = []
        while after < head:
            page = await shard.read_journal(after, limit)
            assert page.head >= head
            numbers = [after, *(entry.number for entry in page.entries)]
            assert all(earlier < later for earlier, later in pairwise(numbers))
            found += page.entries
            after, head = numbers[-1] if page.entries else page.head, page.head
        self._after[shard.shard] = after
        return found

    def moves(self, job: JobId) -> list[tuple[Move, State | None, State]]:
        return [(told.move, told.before, told.after) for told in self.told.get(job, [])]

    def check(self, jobs: Iterable[Job]) -> None:
        """Every job was told of from its first version to its last, in order, each state following the one before."""
        for job in jobs:
            told = self.told.get(job.id, [])
            assert [one.version for one in told] == list(range(1, job.version + 1)), (job, told)
            assert [one.before for one in told] == [None, *(one.after for one in told[:-1])], (job, told)
            assert (told[-1].after, told[-1].attempt) == (job.state, job.attempt), (job, told)
            marked = any(one.move is Move.CANCEL for one in told)
            assert marked or job.cancel_requested_at is None, (job, told)


async def read_all_history(store: Store, where: HistoryFilter | None = None) -> History:
    """The rows and counts of all shards; where rows expire, without the states of ended jobs: those are not counted."""
    found = [await shard.read_history(where or HistoryFilter(EARLIEST, LATEST)) for shard in store.shards()]
    rows, counts = [row for one in found for row in one.rows], [count for one in found for count in one.counts]
    if not store.capabilities.rows_expire:
        return History(rows, counts)
    return History([replace(row, before=_live(row.before), after=_live(row.after)) for row in rows], counts)


def _live(state: State | None) -> State | None:
    return None if state is None or state.terminal else state


def depths(history: History, at: datetime | None = None) -> dict[Line, int]:
    """How many jobs were in each state at an instant, computed back from the counts; None: before everything.

    The instant must not lie within a span.
    """
    found: Counter[Line] = Counter()
    for count in history.counts:
        found[count.queue, count.type, count.state] += count.jobs
    for row in history.rows:
        if at is None or row.at >= at:
            if row.before is not None:
                found[row.queue, row.type, row.before] += row.jobs
            if row.after is not None:
                found[row.queue, row.type, row.after] -= row.jobs
    return {line: jobs for line, jobs in found.items() if jobs}


def lines_of(counts: Iterable[Count]) -> dict[Line, int]:
    """Counts as `depths` gives them."""
    found: Counter[Line] = Counter()
    for count in counts:
        found[count.queue, count.type, count.state] += count.jobs
    return {line: jobs for line, jobs in found.items() if jobs}


def history_lines(store: Store, lines: Mapping[Line, int]) -> dict[Line, int]:
    """Those of the lines that the history of a store counts: where rows expire, of jobs that have not ended."""
    every = not store.capabilities.rows_expire
    return {line: jobs for line, jobs in lines.items() if every or not line[2].terminal}
