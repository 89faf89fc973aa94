"""The consumer of events in the run: a sink with its moods, and two subscriptions that must miss nothing."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from cluster.checker import Found
from cluster.deliveries import DeliveryVerdict, Subscriber, judge_deliveries
from cluster.sink import Mood, Sink
from penstock import Client as Sdk
from penstock.model.errors import Unavailable
from penstock.model.wire.subscriptions import SubscriptionReport

EVERY, SINGLE = "every", "single"
BATCH = 100
"""Of the subscription to everything: the load makes a thousand events a second, and a machine of two cores posts some
hundred single messages beside it."""
SINGLE_TYPES = ("linger", "flaky", "write")
PAGE = 1000
MET_WITHIN = 90.0
"""How long a relay may take to come to a sink in its new mood: it may hang in a message, or rest before a probe."""


class NotMet(Exception):
    """Relays did not come to the sink in time."""


class Consumer:
    """Subscribes, changes the mood of its sink, and judges what came."""

    def __init__(self, sink: Sink, port: int) -> None:
        self._sink = sink
        self._sdk = Sdk(f"http://127.0.0.1:{port}")
        self._subscribers: list[Subscriber] = []
        self._pause = threading.Event()

    def subscribe(self) -> None:
        """Have all events sent in batches, as facts, and those of some types one by one, with the job item."""
        self._sink.change_mood(Mood.WELL)
        url = f"http://127.0.0.1:{self._sink.port}"
        made = self._sdk.subscriptions.create(EVERY, f"{url}/{EVERY}", include="facts", batch=BATCH)
        self._subscribers.append(Subscriber(EVERY, made.secret or ""))
        made = self._sdk.subscriptions.create(SINGLE, f"{url}/{SINGLE}", types=SINGLE_TYPES)
        self._subscribers.append(Subscriber(SINGLE, made.secret or "", SINGLE_TYPES))

    @contextmanager
    def suffer(self, mood: Mood) -> Iterator[None]:
        """The sink has this mood while the body runs; afterwards it is well, and what was disabled is resumed."""
        self._sink.change_mood(mood)
        try:
            self._await_met(mood)
            yield
        finally:
            self._sink.change_mood(Mood.WELL)
        if mood is Mood.GONE:
            self._resume()

    def times_met(self, mood: Mood) -> int:
        """How many requests came while the sink was in this mood."""
        return self._sink.moods_met()[mood]

    def replay_refused(self) -> int:
        """Have events that failed twice or more sent now, as an operator does: they wait for minutes otherwise."""
        refused = {
            (name, one.first)
            for name in (EVERY, SINGLE)
            for one in self._sdk.subscriptions.deliveries(name, page_size=PAGE)
            if not one.delivered and one.attempt > 1
        }
        for name, event in sorted(refused):
            self._sdk.subscriptions.replay(name, event=event)
        return len(refused)

    def wait_until_told(self, seconds: float) -> bool:
        """Wait until every relay has delivered all; False if that takes longer than `seconds`."""
        return self._wait(lambda report: all(one.lag_entries + one.waiting == 0 for one in report.relays), seconds)

    def stand(self) -> Iterator[str]:
        """How the relays stand, for people."""
        for report in self._reports():
            for one in report.relays:
                behind = f"{one.lag_entries:,} entries behind, {one.waiting:,} waiting, {one.dead:,} dead"
                yield f"{report.name} on shard {one.shard}: {report.state}, circuit {one.circuit}, {behind}"

    def judge(self, jobs: Iterable[Found]) -> list[DeliveryVerdict]:
        """One verdict for each subscription."""
        arrivals, known = self._sink.arrivals(), list(jobs)
        return [judge_deliveries(one, arrivals, known) for one in self._subscribers]

    def _await_met(self, mood: Mood) -> None:
        """Wait until a request has met the mood. NotMet if that takes too long: its fault would show nothing."""
        before, deadline = self.times_met(mood), time.monotonic() + MET_WITHIN
        while mood is not Mood.DOWN and self.times_met(mood) == before:
            if time.monotonic() > deadline:
                raise NotMet(f"no webhook has come within {MET_WITHIN:g} s to a sink that is {mood}")
            self._pause.wait(0.05)

    def _resume(self) -> None:
        for one in self._subscribers:
            self._sdk.subscriptions.resume(one.name)

    def _wait(self, holds: Callable[[SubscriptionReport], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(Unavailable):
                reports = self._reports()
                if all(not one.missing_shards and holds(one) for one in reports):
                    return True
            self._pause.wait(0.2)
        return False

    def _reports(self) -> list[SubscriptionReport]:
        return [self._sdk.subscriptions.get(one.name) for one in self._subscribers]
