"""Which events a reader wants, and batches of events that are encoded once for all readers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from penstock.model.declarations import plain_type
from penstock.model.events import event_id
from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.journal import Entry, Position
from penstock.model.lifecycle import State
from penstock.model.wire.events import EventItem
from penstock.model.wire.jobs import JobItem

Names = frozenset[str]

_encode = msgspec.json.Encoder().encode


class StreamFilter(Struct, frozen=True):
    """The events of jobs of these types, queues and tags, into these states; None does not restrict.

    `items`: each with the job as it is when the event is sent.
    """

    types: Names | None = None
    queues: Names | None = None
    states: frozenset[State] | None = None
    tags: Names | None = None
    job: JobId | None = None
    items: bool = False

    @property
    def needs_jobs(self) -> bool:
        """Whether the journal alone cannot tell what to send."""
        return self.items or self.tags is not None

    def wants(self, entry: Entry) -> bool:
        """Whether it may want events of an entry."""
        return (
            (self.types is None or plain_type(entry.type) in self.types)
            and (self.queues is None or entry.queue in self.queues)
            and (self.states is None or entry.after in self.states)
            and (self.job is None or self.job in entry.jobs)
        )

    def wants_job(self, job: JobId, found: Job | None) -> bool:
        if self.job is not None and job != self.job:
            return False
        return self.tags is None or (found is not None and not self.tags.isdisjoint(found.tags))


class EntrySlice(Struct, frozen=True):
    """Events of one entry: from `start` on, before `stop`."""

    entry: Entry
    start: int
    stop: int

    @property
    def end(self) -> Position:
        """The position after it."""
        whole = self.stop == len(self.entry.jobs)
        return Position(self.entry.number + 1) if whole else Position(self.entry.number, self.stop)

    @property
    def jobs(self) -> Sequence[JobId]:
        return self.entry.jobs[self.start : self.stop]

    def items(self) -> Iterator[EventItem]:
        entry = self.entry
        name, move = plain_type(entry.type), str(entry.move)
        for event in self.entry.events(self.start):
            yield EventItem(
                id=event_id(event.job, event.version),
                job=event.job,
                version=event.version,
                type=name,
                queue=entry.queue,
                move=move,
                before=entry.before,
                after=entry.after,
                attempt=event.attempt,
                reason=event.reason,
                at=entry.at,
            )


def cut_entries(
    entries: Iterable[Entry], start: Position, limit: int, stop: Position | None = None
) -> Iterator[list[EntrySlice]]:
    """The events of entries from a position on, and before `stop`, in batches of at most `limit`."""
    batch: list[EntrySlice] = []
    room = limit
    for entry in entries:
        index = start.index if entry.number == start.number else 0
        last = len(entry.jobs) if stop is None or entry.number < stop.number else stop.index
        if stop is not None and entry.number > stop.number:
            break
        while index < last:
            taken = min(room, last - index)
            batch.append(EntrySlice(entry, index, index + taken))
            index, room = index + taken, room - taken
            if not room:
                yield batch
                batch, room = [], limit
    if batch:
        yield batch


class EventBatch:
    """Events of one shard in order. Each is encoded at most once with and once without its job, for all readers."""

    def __init__(self, slices: Sequence[EntrySlice]) -> None:
        self.slices = slices
        self._jobs: Mapping[JobId, Job] = {}
        self._job_items: Mapping[JobId, JobItem] = {}
        self._plain: dict[int, list[EventItem]] = {}
        self._blocks: dict[tuple[int, bool], list[bytes]] = {}

    @property
    def end(self) -> Position:
        """The position after the last event."""
        return self.slices[-1].end

    def jobs_for(self, filters: Iterable[StreamFilter]) -> list[JobId]:
        """The jobs that must be read to send to these filters."""
        asking = [where for where in filters if where.needs_jobs]
        wanted = [one for one in self.slices if any(where.wants(one.entry) for where in asking)]
        return list(dict.fromkeys(job for one in wanted for job in one.jobs))

    def add_jobs(self, jobs: Mapping[JobId, Job], items: Mapping[JobId, JobItem]) -> None:
        """Give it the jobs that were read; jobs that are no longer kept are left out."""
        self._jobs, self._job_items = jobs, items

    def select(self, where: StreamFilter) -> list[tuple[Position, EventItem]]:
        """The events that a filter wants, each with the position after it."""
        return [
            (EntrySlice(one.entry, 0, index + 1).end, self._with_job(item) if where.items else item)
            for number, one in enumerate(self.slices)
            if where.wants(one.entry)
            for index, item in enumerate(self._items(number), one.start)
            if where.wants_job(item.job, self._jobs.get(item.job))
        ]

    def encode(self, where: StreamFilter) -> bytes:
        """The events that a filter wants, as the text of a stream."""
        return b"".join(
            block
            for number, one in enumerate(self.slices)
            if where.wants(one.entry)
            for item, block in zip(self._items(number), self._encoded(number, with_job=where.items), strict=True)
            if where.wants_job(item.job, self._jobs.get(item.job))
        )

    def last_state(self, job: JobId) -> State | None:
        """The state after the last event of a job in this batch; None if there is none."""
        return next((one.entry.after for one in reversed(self.slices) if job in one.jobs), None)

    def _items(self, number: int) -> list[EventItem]:
        found = self._plain.get(number)
        if found is None:
            one = self.slices[number]
            found = [item for item, _ in zip(one.items(), range(one.stop - one.start), strict=False)]
            self._plain[number] = found
        return found

    def _with_job(self, item: EventItem) -> EventItem:
        return msgspec.structs.replace(item, item=self._job_items.get(item.job))

    def _encoded(self, number: int, *, with_job: bool) -> list[bytes]:
        found = self._blocks.get((number, with_job))
        if found is None:
            items = self._items(number)
            found = [block_of(self._with_job(item) if with_job else item) for item in items]
            self._blocks[number, with_job] = found
        return found


def block_of(data: object, event: str | None = None) -> bytes:
    """One event of a stream, with its data as JSON."""
    head = b"" if event is None else b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (head, _encode(data))


def id_block(cursor_text: str) -> bytes:
    """Sets the id that a client shows when it connects again, without an event."""
    return b"id: %b\n\n" % cursor_text.encode()
