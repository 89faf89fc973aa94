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
from penstock.model.subscriptions import SubscriptionState
from penstock.model.wire.subscriptions import SubscriptionReport

BATCH = 100
IN_FLIGHT = 30
"""Of single messages: ten for each relay of three, so that they keep up with the load on a machine of two cores."""
DISABLED_WITHIN = 20.0
EVERY, BATCHED = "every", "batched"
BATCHED_TYPE = "quick"


class Consumer:
    """Subscribes, changes the mood of its sink, and judges what came."""

    def __init__(self, sink: Sink, port: int) -> None:
        self._sink = sink
        self._sdk = Sdk(f"http://127.0.0.1:{port}")
        self._subscribers: list[Subscriber] = []
        self._pause = threading.Event()

    def subscribe(self) -> None:
        """Have all events sent one by one as facts, and those of one type in batches with the job item."""
        self._sink.change_mood(Mood.WELL)
        url = f"http://127.0.0.1:{self._sink.port}"
        made = self._sdk.subscriptions.create(EVERY, f"{url}/{EVERY}", include="facts", in_flight=IN_FLIGHT)
        self._subscribers.append(Subscriber(EVERY, made.secret or ""))
        made = self._sdk.subscriptions.create(BATCHED, f"{url}/{BATCHED}", types=[BATCHED_TYPE], batch=BATCH)
        self._subscribers.append(Subscriber(BATCHED, made.secret or "", BATCHED_TYPE))

    @contextmanager
    def suffer(self, mood: Mood) -> Iterator[None]:
        """The sink has this mood while the body runs; afterwards it is well, and what was disabled is resumed."""
        self._sink.change_mood(mood)
        try:
            if mood is Mood.GONE:
                self._await_disabled()
            yield
        finally:
            self._sink.change_mood(Mood.WELL)
        if mood is Mood.GONE:
            self._resume()

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

    def _await_disabled(self) -> None:
        """Not every fault leaves traffic for both, so this does not insist."""
        self._wait(lambda report: report.state is SubscriptionState.DISABLED, DISABLED_WITHIN)

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
