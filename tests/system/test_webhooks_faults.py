"""Nothing missed, on SQLite: sinks that fail in every way, a server that is killed, and a log that has it all."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from cluster.checker import Found
from cluster.deliveries import Subscriber, judge_deliveries
from cluster.sink import Mood, Sink
from penstock import Client
from penstock.model.subscriptions import SubscriptionState
from penstock.model.wire.jobs import JobItem
from tests.system.harness import Server, ending, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

JOBS = 60
FAILING = {Mood.DOWN, Mood.ERROR, Mood.REDIRECT}
ACCEPTING = {Mood.SLOW, Mood.GIGABYTE}
BATCH = 5
"""So small that a failing sink opens the circuit of its relay: what fails twice waits for minutes otherwise."""


class MoodySink:
    """A sink in one mood, with a subscription of its own; every second one is given batches."""

    def __init__(self, mood: Mood, folder: Path) -> None:
        self.mood = mood
        self.sink = Sink(folder / mood.name, folder / f"{mood.name}.jsonl")
        self.name = mood.name.lower()
        self._secret = ""

    def subscribe(self, client: Client, *, batch: int) -> None:
        self.sink.change_mood(self.mood)
        url = f"http://127.0.0.1:{self.sink.port}/{self.name}"
        self._secret = client.subscriptions.create(self.name, url, batch=batch).secret or ""

    def is_felt(self, client: Client) -> bool:
        """Whether the relay has met the mood. One that hangs is noticed after 15 s only."""
        report = client.subscriptions.get(self.name)
        if self.mood is Mood.GONE:
            return report.state is SubscriptionState.DISABLED
        if self.mood in FAILING:
            return sum(relay.failed for relay in report.relays) > 0
        return self.mood not in ACCEPTING or bool(self.sink.arrivals())

    def recover(self, client: Client) -> None:
        self.sink.change_mood(Mood.WELL)
        if self.mood is Mood.GONE:
            client.subscriptions.resume(self.name)

    def is_told(self, client: Client) -> bool:
        relays = client.subscriptions.get(self.name).relays
        return all(relay.lag_entries + relay.waiting == 0 for relay in relays)

    def judge(self, jobs: Sequence[Found]) -> None:
        verdict = judge_deliveries(Subscriber(self.name, self._secret), self.sink.arrivals(), jobs)
        assert verdict.findings == (), f"{self.mood}: {verdict.findings[:5]}"
        assert verdict.events == sum(job.version for job in jobs)


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[list[MoodySink]]:
    with ExitStack() as stopping:
        found = [MoodySink(mood, tmp_path) for mood in Mood if mood is not Mood.WELL]
        for one in found:
            stopping.callback(one.sink.stop)
        yield found


def test_sinks_that_fail_miss_nothing_when_the_server_is_killed_meanwhile(
    tmp_path: Path, sinks: list[MoodySink]
) -> None:
    first = Server(tmp_path / "data")
    with ending(first), Client(first.url, patience=30) as client:
        for number, one in enumerate(sinks):
            one.subscribe(client, batch=BATCH if number % 2 else 1)
        run_jobs(client)
        for one in sinks:
            eventually(f"the relay meets a sink that is {one.mood}", partial(one.is_felt, client))
        waiting = submit(client)
        first.kill()
        second = Server(tmp_path / "data", port=first.port)
        with ending(second):
            for one in sinks:
                one.recover(client)
            wait_for_ends(client, waiting)
            run_jobs(client)
            for one in sinks:
                eventually(f"all is told to the sink that was {one.mood}", partial(one.is_told, client))
            jobs = list(map(found_of, client.list()))
            assert len(jobs) == 3 * JOBS
            for one in sinks:
                one.judge(jobs)


def submit(client: Client) -> list[str]:
    return [str(one.id) for one in client.submit_many({"type": "mark", "params": {"n": n}} for n in range(JOBS))]


def run_jobs(client: Client) -> None:
    """Jobs go on, whatever the sinks do."""
    wait_for_ends(client, submit(client))


def wait_for_ends(client: Client, jobs: Sequence[str]) -> None:
    assert {client.wait(job, timeout=30).state for job in jobs} == {"succeeded"}


def found_of(item: JobItem) -> Found:
    """What the judge needs to know of a job."""
    return Found(id=str(item.id), n=0, state=item.state, fence=item.fence, type=item.type, version=item.version)
