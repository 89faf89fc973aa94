"""The judge: reads what clients and handlers wrote, and the jobs as the public API shows them at the end. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from msgspec import Struct

from cluster.records import Call, Entry, Event, Mark, Phase

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})


class Wrong(StrEnum):
    """`lost`: acknowledged and not ended. `doubled`: two jobs for one order, or two outcomes or results of one job.

    `late start`: an attempt began after `cancelled` was answered or after the outcome. `failed`: ended otherwise than
    every order can. `unasked`: a job that no client asked for.
    """

    LOST = "lost"
    DOUBLED = "doubled"
    LATE_START = "late start"
    FAILED = "failed"
    UNASKED = "unasked"


class Finding(Struct, frozen=True):
    wrong: Wrong
    n: int
    what: str


class Found(Struct, frozen=True, kw_only=True):
    """A job at the end, as GET /v1/jobs shows it; `output` is the text of its output file, if it has one."""

    id: str
    n: int
    state: str
    fence: int
    type: str = ""
    version: int = 1
    result: object = None
    output: str | None = None


class Verdict(Struct, frozen=True):
    """`finished_once` counts acknowledged orders without a fault."""

    acknowledged: int
    finished_once: int
    interrupted: int
    findings: tuple[Finding, ...]

    def count(self, wrong: Wrong) -> int:
        return sum(finding.wrong is wrong for finding in self.findings)


class Order(Struct, frozen=True):
    """All that is known of one order of the load."""

    n: int
    events: Sequence[Event]
    entries: Sequence[Entry]
    jobs: Sequence[Found]

    @property
    def acknowledged(self) -> bool:
        return any(event.call is Call.SUBMIT and event.phase is Phase.OK for event in self.events)


def judge(events: Iterable[Event], ledger: Iterable[Entry], jobs: Iterable[Found]) -> Verdict:
    """What is wrong between the three; nothing, if all promises were kept."""
    orders = list(_orders(events, ledger, jobs))
    wrong = {order.n: list(_look_at(order)) for order in orders}
    acknowledged = [order.n for order in orders if order.acknowledged]
    return Verdict(
        acknowledged=len(acknowledged),
        finished_once=sum(not wrong[n] for n in acknowledged),
        interrupted=sum(_interrupted(order) for order in orders),
        findings=tuple(finding for findings in wrong.values() for finding in findings),
    )


def _orders(events: Iterable[Event], ledger: Iterable[Entry], jobs: Iterable[Found]) -> Iterator[Order]:
    by_events, by_entries, by_jobs = _by_number(events), _by_number(ledger), _by_number(jobs)
    for n in sorted({*by_events, *by_entries, *by_jobs}):
        yield Order(n, by_events.get(n, ()), by_entries.get(n, ()), by_jobs.get(n, ()))


def _look_at(order: Order) -> Iterator[Finding]:
    for wrong, what in (*_missing(order), *_twice(order), *_outcome(order), *_starts(order)):
        yield Finding(wrong, order.n, what)


def _missing(order: Order) -> Iterator[tuple[Wrong, str]]:
    if order.acknowledged and not order.jobs:
        yield Wrong.LOST, "acknowledged, and no such job at the end"
    for job in order.jobs:
        if order.acknowledged and job.state not in ENDED:
            yield Wrong.LOST, f"acknowledged, and job {job.id} is still {job.state}"
    if order.jobs and not order.events:
        yield Wrong.UNASKED, f"job {order.jobs[0].id} was never asked for"


def _twice(order: Order) -> Iterator[tuple[Wrong, str]]:
    ids = {job.id for job in order.jobs} | {event.job for event in order.events if event.job}
    ids |= {entry.job for entry in order.entries}
    if len(ids) > 1:
        yield Wrong.DOUBLED, f"one order, {len(ids)} jobs: {', '.join(sorted(ids))}"
    if len(order.jobs) > len({job.id for job in order.jobs}):
        yield Wrong.DOUBLED, f"job {order.jobs[0].id} is listed {len(order.jobs)} times"
    told = {(event.state, event.fence) for event in order.events if event.state in ENDED and event.fence is not None}
    told |= {(job.state, job.fence) for job in order.jobs if job.state in ENDED}
    if len(told) > 1:
        yield Wrong.DOUBLED, f"two outcomes: {', '.join(f'{state} at fence {fence}' for state, fence in sorted(told))}"


def _outcome(order: Order) -> Iterator[tuple[Wrong, str]]:
    """The recorded outcome must be that of the attempt in the ledger that has its fence."""
    for job in order.jobs:
        if job.state in {"failed", "expired"}:
            yield Wrong.FAILED, f"job {job.id} {job.state}, and no order may"
        if job.state == "cancelled" and not any(event.call is Call.CANCEL for event in order.events):
            yield Wrong.FAILED, f"job {job.id} is cancelled, and nobody asked for it"
        if job.state == "succeeded":
            yield from _success(job, order.entries)


def _success(job: Found, entries: Sequence[Entry]) -> Iterator[tuple[Wrong, str]]:
    ended = {entry.fence for entry in entries if entry.mark is Mark.END}
    if job.fence not in ended:
        yield Wrong.DOUBLED, f"job {job.id} succeeded at fence {job.fence}; the ledger has ends at {sorted(ended)}"
    if job.result != job.fence:
        yield Wrong.DOUBLED, f"job {job.id} has the result of fence {job.result}, but settled at {job.fence}"
    if job.output is not None and job.output != str(job.fence):
        yield Wrong.DOUBLED, f"job {job.id} shows the output of fence {job.output}, but settled at {job.fence}"


def _starts(order: Order) -> Iterator[tuple[Wrong, str]]:
    starts = [entry for entry in order.entries if entry.mark is Mark.START]
    for fence, times in Counter(entry.fence for entry in starts).items():
        if times > 1:
            yield Wrong.DOUBLED, f"fence {fence} was started {times} times"
    for job in order.jobs:
        if job.state in ENDED and any(entry.fence > job.fence for entry in starts):
            yield Wrong.LATE_START, f"job {job.id} was started after its outcome at fence {job.fence}"
    cancelled = [event.at for event in order.events if event.state == "cancelled"]
    if cancelled and any(entry.at > min(cancelled) for entry in starts):
        yield Wrong.LATE_START, "an attempt began after `cancelled` was answered"


def _interrupted(order: Order) -> int:
    """Attempts that began, did not error, and are not the one whose outcome counts: something came between."""
    errored = {entry.fence for entry in order.entries if entry.mark is Mark.ERROR}
    counted = {job.fence for job in order.jobs}
    return sum(entry.mark is Mark.START and entry.fence not in errored | counted for entry in order.entries)


class Numbered(Protocol):
    @property
    def n(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def _by_number(things: Iterable[N]) -> Mapping[int, Sequence[N]]:
    found: defaultdict[int, list[N]] = defaultdict(list)
    for thing in things:
        found[thing.n].append(thing)
    return found
