"""The events that a relay holds, in one lane per job: of each job one message at a time is under way. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from penstock.model.declarations import plain_type
from penstock.model.events import JobEvent, job_event, unpack_event
from penstock.model.ids import JobId
from penstock.model.journal import Entry, Parked, Position
from penstock.model.subscriptions import EventFilter


class HeldEvent(Struct, frozen=True):
    """An event to deliver: of the journal (`start` is its place), parked, or both where a user replays it early."""

    event: JobEvent
    start: Position | None = None
    parked: Parked | None = None

    @property
    def attempts(self) -> int:
        """How many deliveries of it have failed."""
        return 0 if self.parked is None else self.parked.attempts


class EventWindow(Struct, frozen=True):
    """The wanted events of a part of the journal, in order, and the position after that part."""

    events: Sequence[HeldEvent]
    end: Position


def cut_window(entries: Sequence[Entry], start: Position, where: EventFilter, limit: int) -> EventWindow:
    """Up to `limit` events that the filter may want, by the columns of their entries; tags are not looked at."""
    held: list[HeldEvent] = []
    for entry in entries:
        first = start.index if entry.number == start.number else 0
        if not where.fits_move(plain_type(entry.type), entry.queue, entry.after):
            continue
        for index, one in enumerate(entry.events(first), first):
            if len(held) == limit:
                return EventWindow(held, Position(entry.number, index))
            held.append(HeldEvent(job_event(entry, one), Position(entry.number, index)))
    return EventWindow(held, Position(entries[-1].number + 1) if entries else start)


def held_parked(parked: Parked) -> HeldEvent:
    return HeldEvent(unpack_event(parked.event), parked=parked)


class Lanes:
    """Held events by job, in the order of their versions; those that may be sent now are `ready`, the oldest first.

    A lane whose first event is parked and not due is blocked: its later events wait behind it.
    """

    def __init__(self, waiting: Iterable[Parked], fresh: Iterable[HeldEvent], now: datetime) -> None:
        self.by_job: dict[JobId, deque[HeldEvent]] = {}
        by_version: dict[JobId, dict[int, HeldEvent]] = {}
        for one in (*map(held_parked, waiting), *fresh):
            lane = by_version.setdefault(one.event.job, {})
            known = lane.get(one.event.version)
            lane[one.event.version] = one if known is None else HeldEvent(one.event, one.start, known.parked)
        for job, lane in by_version.items():
            self.by_job[job] = deque(lane[version] for version in sorted(lane))
        self._ready = deque(job for job, lane in self.by_job.items() if _is_due(lane[0], now))

    @property
    def all_sent(self) -> bool:
        """Whether no event may be sent now."""
        return not self._ready

    def take(self, most: int) -> list[HeldEvent]:
        """The events of the next message; their lanes are busy until they are given back.

        An event that has failed before goes alone: in a batch it would make others fail with it.
        """
        taken: list[HeldEvent] = []
        while self._ready and len(taken) < most:
            lane = self.by_job[self._ready[0]]
            if lane[0].attempts and taken:
                break
            self._ready.popleft()
            taken += _first_of(lane, most - len(taken))
            if taken[-1].attempts:
                break
        return taken

    def remove(self, events: Iterable[HeldEvent], blocked: Collection[JobId] = ()) -> None:
        """Take out events that are delivered or dead; the next ones of their jobs are ready before all others.

        Jobs that are `blocked` have an event that failed: their lanes wait for the next round.
        """
        jobs = dict.fromkeys(one.event.job for one in events if one.event.job not in blocked)
        for one in events:
            self.by_job[one.event.job].remove(one)
        self._ready.extendleft(job for job in reversed(jobs) if self.by_job[job])

    def begin_with(self, turn: int) -> None:
        """Put the lane of a probe first: at turn 0 the oldest, then the newest, the one before it, and so on.

        The sink may be well and refuse only the first. Events that have not failed come before those that have, which
        are tried anyway, and wait the longer the more often they fail.
        """
        fresh = [job for job in self._ready if not self.by_job[job][0].attempts]
        failed = [job for job in self._ready if self.by_job[job][0].attempts]
        first = -turn % len(fresh) if fresh else 0
        self._ready = deque([*fresh[first : first + 1], *fresh[:first], *fresh[first + 1 :], *failed])


def _is_due(head: HeldEvent, now: datetime) -> bool:
    """Whether the first event of a lane may be sent. One that waits behind none is due."""
    return head.parked is None or head.parked.due_at is None or head.parked.due_at <= now


def _first_of(lane: Collection[HeldEvent], most: int) -> list[HeldEvent]:
    taken: list[HeldEvent] = []
    for one in lane:
        if len(taken) == most or (taken and (one.attempts or taken[0].attempts)):
            break
        taken.append(one)
    return taken
