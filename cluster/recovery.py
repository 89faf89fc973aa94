"""How long each kind of fault was felt, measured from outside: from histories and ledger alone. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from cluster.records import Call, Entry, Event, Mark, Phase

LOOK_SECONDS = 1.0
"""How long another scheduler may rest before it looks by itself at what the dead one was woken for."""

SLACK_SECONDS = 1.0
"""What a loaded machine makes any job wait; it is added to bars of zero and nowhere else."""


class Fault(StrEnum):
    API = "API killed"
    SCHEDULER = "scheduler killed"
    WORKER = "worker killed"
    FLUSH = "broker flushed"
    BROKER = "broker killed"
    SCHEDULERS = "schedulers killed"
    SHARD = "shard killed"
    DEAD = "shard left dead"
    ADD = "shard added"
    DRAIN = "shard drained"
    FREEZE = "primary frozen"


class Harm(Struct, frozen=True, kw_only=True):
    """One fault: when it came, when what was killed answered again, and what it hit.

    Of a change of the shard map: when it was answered, and since when every API goes by it. Of a frozen primary: when
    it froze, and when its standby was promoted.
    """

    fault: Fault
    at: float
    back_at: float
    worker: str | None = None
    shard: int | None = None
    until: float = float("inf")


BARS = {
    Fault.API: None,
    Fault.SCHEDULER: LOOK_SECONDS + SLACK_SECONDS,
    Fault.WORKER: 20.0,
    Fault.FLUSH: 3.0,
    Fault.BROKER: 3.0,
    Fault.SCHEDULERS: None,
    Fault.SHARD: 5.0,
    Fault.DEAD: 5.0,
    Fault.ADD: 5.0,
    Fault.DRAIN: 5.0,
    Fault.FREEZE: 15.0,
}
"""G8 and G3 in seconds; of an API and of all schedulers nothing is promised but that nothing is lost."""

MEANINGS = {
    Fault.API: "longest time without an acknowledged submit after the kill",
    Fault.SCHEDULER: "longest wait for a start, of jobs that were or fell due within 3 s after the kill",
    Fault.WORKER: "longest time from the kill until a job that it ran, or any that was due, was started again",
    Fault.FLUSH: "longest time from the flush until a job that was due then was started",
    Fault.BROKER: "longest time from its answering again until a job that was due then was started",
    Fault.SCHEDULERS: "longest time from their start until a job that was due then was started",
    Fault.SHARD: "time from its answering again until a submit on it was acknowledged and a job of it was started",
    Fault.DEAD: "the same, after it was dead for longer than the SDK's clients wait",
    Fault.ADD: "time until every API used it and a job without a key was on it",
    Fault.DRAIN: "time until no API put a job without a key on it",
    Fault.FREEZE: "time from the freeze until no submit was left unanswered and all jobs that were due had started",
}

SOON = 3.0


class Recovery(Struct, frozen=True):
    """`seconds` is None when nothing was there to measure."""

    fault: Fault
    seconds: float | None

    @property
    def bar(self) -> float | None:
        return BARS[self.fault]

    @property
    def kept(self) -> bool:
        return self.bar is None or (self.seconds is not None and self.seconds <= self.bar)


class Course:
    """Histories and ledger, arranged by job."""

    def __init__(self, events: Sequence[Event], ledger: Iterable[Entry]) -> None:
        self.acks = [event for event in events if event.call is Call.SUBMIT and event.phase is Phase.OK and event.job]
        self.unanswered = [event.at for event in events if event.call is Call.SUBMIT and event.phase is Phase.INFO]
        self._cancelled = {event.n for event in events if event.call is Call.CANCEL}
        self._first: dict[str, Event] = {}
        for event in self.acks:
            self._first.setdefault(str(event.job), event)
        self.starts: dict[str, list[Entry]] = {}
        for entry in sorted(ledger, key=lambda entry: entry.at):
            if entry.mark is Mark.START:
                self.starts.setdefault(entry.job, []).append(entry)

    def due(self) -> Iterator[tuple[str, float]]:
        """Each acknowledged job that was not cancelled, and when it was both acknowledged and due."""
        for job, event in self._first.items():
            if event.n not in self._cancelled:
                yield job, event.at + event.delay

    def started_after(self, job: str, moment: float) -> float | None:
        return next((entry.at for entry in self.starts.get(job, ()) if entry.at > moment), None)

    def begun_before(self, job: str, moment: float) -> Entry | None:
        """The attempt that was the last to begin by then."""
        before = [entry for entry in self.starts.get(job, ()) if entry.at <= moment]
        return before[-1] if before else None


def measure(harms: Sequence[Harm], events: Sequence[Event], ledger: Sequence[Entry]) -> list[Recovery]:
    """For each kind of fault the longest time it was felt."""
    course = Course(events, ledger)
    found: dict[Fault, list[float]] = {harm.fault: [] for harm in harms}
    for harm in harms:
        found[harm.fault] += _felt(harm, course)
    return [Recovery(fault, max(times) if times else None) for fault, times in found.items()]


def _felt(harm: Harm, course: Course) -> Iterator[float]:
    match harm.fault:
        case Fault.API:
            yield from _gaps([event.at for event in course.acks], harm.at, harm.until)
        case Fault.SCHEDULER:
            yield from _waits(course, harm.at, harm.at + SOON)
        case Fault.WORKER:
            yield from _waits(course, harm.at, harm.at)
            yield from _interrupted(course, harm)
        case Fault.FLUSH | Fault.BROKER | Fault.SCHEDULERS:
            yield from _waits(course, harm.back_at, harm.back_at)
        case Fault.SHARD | Fault.DEAD:
            yield from _resumed(course, harm, harm.back_at)
        case Fault.ADD:
            yield from _used(course, harm)
        case Fault.DRAIN:
            yield harm.back_at - harm.at
        case Fault.FREEZE:
            yield from _resumed(course, harm, harm.at)
            yield from _waits(course, harm.at, harm.at, harm.shard)
            yield from (at - harm.at for at in course.unanswered if harm.at < at <= harm.until)


def _gaps(moments: Iterable[float], start: float, until: float) -> Iterator[float]:
    within = [start, *sorted(at for at in moments if start < at <= until)]
    return (after - before for before, after in pairwise(within))


def _waits(course: Course, since: float, until: float, shard: int | None = None) -> Iterator[float]:
    """Of jobs due by `until` and not begun by `since`: how long each waited, counted from `since` at the earliest.

    Those of one shard, if it is named.
    """
    for job, due in course.due():
        if shard is not None and shard_of(job) != shard:
            continue
        if due <= until and course.begun_before(job, since) is None:
            started = course.started_after(job, since)
            if started is not None:
                yield started - max(since, due)


def _interrupted(course: Course, harm: Harm) -> Iterator[float]:
    """Jobs whose last attempt was the dead worker's and had to be repeated, even if only its settle was lost."""
    for job, _ in course.due():
        attempt = course.begun_before(job, harm.at)
        if attempt is None or attempt.worker != harm.worker:
            continue
        again = course.started_after(job, harm.at)
        if again is not None:
            yield again - harm.at


def _resumed(course: Course, harm: Harm, since: float) -> Iterator[float]:
    """From `since` until the first submit and the first start on the shard after it was back."""
    acks = [event.at for event in course.acks if shard_of(str(event.job)) == harm.shard]
    starts = [entry.at for job, entries in course.starts.items() if shard_of(job) == harm.shard for entry in entries]
    for moments in (acks, starts):
        after = [at for at in moments if at > harm.back_at]
        if after:
            yield min(after) - since


def _used(course: Course, harm: Harm) -> Iterator[float]:
    """Nothing if the shard was never used."""
    placed = [event.at for event in course.acks if shard_of(str(event.job)) == harm.shard]
    if placed:
        yield max(harm.back_at, min(placed)) - harm.at


def shard_of(job: str) -> int:
    """The 12 bits of a job's id that name its shard."""
    return int(job[15:18], 16)
