"""The judge of deliveries: reads what the sink accepted, and the jobs as the public API shows them at the end. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from cluster.checker import Found
from cluster.sink import Arrival
from penstock.model.errors import WebhookRefused
from penstock.model.events import JobEvent
from penstock.webhooks import Receiver

SKEW = timedelta(seconds=1)
"""How far the clocks of a store and of the sink may differ; here they are those of one machine."""
READ_LATER = timedelta(days=1)
"""The log is read at the end of a run, long after its messages were signed."""


class BadDelivery(StrEnum):
    """`missed`: a version of a job that never came. `out of order`: one whose first arrival was after a later one's.

    `unknown`: no such job at the end, a version that it does not have, or a job that the filter leaves out. `early`:
    it came before its change was committed. `badly signed`: the signature is not that of these bytes.
    """

    MISSED = "missed"
    OUT_OF_ORDER = "out of order"
    UNKNOWN = "unknown"
    EARLY = "early"
    BADLY_SIGNED = "badly signed"


class DeliveryFinding(Struct, frozen=True):
    wrong: BadDelivery
    what: str


class Subscriber(Struct, frozen=True):
    """A subscription of the run: its name, which is also the path of its sink, its secret, and the types it wants."""

    name: str
    secret: str
    types: Sequence[str] | None = None

    @property
    def path(self) -> str:
        return f"/{self.name}"

    def wants(self, job: Found) -> bool:
        return self.types is None or job.type in self.types


class DeliveryVerdict(Struct, frozen=True):
    """`events` are different ones; `repeated` counts arrivals of events that had come before, which is allowed."""

    name: str
    requests: int
    events: int
    repeated: int
    findings: tuple[DeliveryFinding, ...]

    def count(self, wrong: BadDelivery) -> int:
        return sum(finding.wrong is wrong for finding in self.findings)


def judge_deliveries(subscriber: Subscriber, log: Iterable[Arrival], jobs: Iterable[Found]) -> DeliveryVerdict:
    """What is wrong between the log and the jobs; nothing, if every change was told, in order and signed."""
    arrivals = [one for one in log if one.path == subscriber.path]
    wanted = {job.id: job for job in jobs if subscriber.wants(job)}
    told, badly_signed = _read(subscriber, arrivals)
    seen = Counter((str(event.job), event.version) for _, event in told)
    findings = [
        *badly_signed,
        *_missed(seen, wanted),
        *_out_of_order([event for _, event in told]),
        *_unknown(seen, wanted),
        *_early(told),
    ]
    return DeliveryVerdict(subscriber.name, len(arrivals), len(seen), seen.total() - len(seen), tuple(findings))


def _read(
    subscriber: Subscriber, arrivals: Sequence[Arrival]
) -> tuple[list[tuple[Arrival, JobEvent]], list[DeliveryFinding]]:
    """The events of all messages in the order of their arrival, as any receiver reads them, and what it refuses."""
    receiver = Receiver(subscriber.secret, tolerance=READ_LATER)
    told: list[tuple[Arrival, JobEvent]] = []
    refused: list[DeliveryFinding] = []
    for one in arrivals:
        try:
            told += [(one, received.event) for received in receiver.read(one.headers, one.body)]
        except WebhookRefused as error:
            refused.append(DeliveryFinding(BadDelivery.BADLY_SIGNED, f"at {one.at:%X}: {error.message}"))
    return told, refused


def _missed(seen: Mapping[tuple[str, int], int], wanted: Mapping[str, Found]) -> Iterator[DeliveryFinding]:
    for job in wanted.values():
        missed = [version for version in range(1, job.version + 1) if (job.id, version) not in seen]
        if missed:
            yield DeliveryFinding(BadDelivery.MISSED, f"versions {missed} of {job.version} of job {job.id}")


def _out_of_order(events: Iterable[JobEvent]) -> Iterator[DeliveryFinding]:
    newest: dict[str, int] = {}
    known: set[tuple[str, int]] = set()
    for event in events:
        last = newest.get(event.job, 0)
        if event.version < last and (event.job, event.version) not in known:
            what = f"version {event.version} of job {event.job} came after version {last}"
            yield DeliveryFinding(BadDelivery.OUT_OF_ORDER, what)
        known.add((event.job, event.version))
        newest[event.job] = max(last, event.version)


def _unknown(seen: Iterable[tuple[str, int]], wanted: Mapping[str, Found]) -> Iterator[DeliveryFinding]:
    for job, version in seen:
        if job not in wanted:
            yield DeliveryFinding(BadDelivery.UNKNOWN, f"version {version} of job {job}, which is not a wanted job")
        elif version > wanted[job].version:
            what = f"version {version} of job {job}, which has only {wanted[job].version}"
            yield DeliveryFinding(BadDelivery.UNKNOWN, what)


def _early(told: Iterable[tuple[Arrival, JobEvent]]) -> Iterator[DeliveryFinding]:
    for arrival, event in told:
        if event.at > arrival.at + SKEW:
            ahead = (event.at - arrival.at).total_seconds()
            yield DeliveryFinding(BadDelivery.EARLY, f"event {event.id} came {ahead:.1f} s before its own time")
