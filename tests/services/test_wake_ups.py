"""Wake-ups of the sweep: delayed messages of a real queue, one for each two seconds however many functions want it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.config.function_settings import FunctionSettings
from penstock.engine import Engine
from penstock.functions.host import FunctionHost
from penstock.functions.wake_ups import HORIZON, SPACING, WakeUpQueue, rounded_up
from penstock.model.clock import EPOCH
from penstock.testing.clock import START, SimulatedClock
from tests.emulators import ministack, use_emulator
from tests.gateway import FunctionClient, small_settings
from tests.sns_topic import make_client

SECOND = timedelta(seconds=1)


class WakeQueue:
    """A queue of ministack, and what was sent to it."""

    def __init__(self) -> None:
        self._sqs = make_client("sqs", ministack().endpoint)
        self.url: str = self._sqs.create_queue(QueueName=f"wake-{uuid.uuid4().hex[:12]}")["QueueUrl"]

    def counts(self) -> tuple[int, int]:
        """Messages that are there now, and those that are delayed."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        told: dict[str, Any] = self._sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(told[names[0]]), int(told[names[1]])


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> WakeQueue:
    use_emulator(monkeypatch, ministack())
    return WakeQueue()


@pytest.fixture
async def wake_ups(engine: Engine, clock: SimulatedClock, queue: WakeQueue) -> AsyncIterator[WakeUpQueue]:
    wake_ups = WakeUpQueue(engine.store, clock, queue.url)
    yield wake_ups
    await wake_ups.close()


async def test_a_wake_up_comes_at_the_instant_or_two_seconds_after_it(
    wake_ups: WakeUpQueue, clock: SimulatedClock, queue: WakeQueue
) -> None:
    clock.advance(SECOND / 2)
    assert await wake_ups.request(clock.now() + 10 * SECOND) == timedelta(seconds=11.5)
    assert queue.counts() == (0, 1)


async def test_however_many_functions_want_the_same_wake_up_it_is_sent_once(
    engine: Engine, clock: SimulatedClock, queue: WakeQueue
) -> None:
    functions = [WakeUpQueue(engine.store, clock, queue.url) for _ in range(5)]
    at = clock.now() + 30 * SECOND
    for _ in range(2):
        delays = await asyncio.gather(*(one.request(at) for one in functions))
        assert set(delays) == {30 * SECOND}
    assert queue.counts() == (0, 1)
    await asyncio.gather(*(one.close() for one in functions))


async def test_a_sooner_wake_up_is_sent_although_a_later_one_is_on_its_way(
    wake_ups: WakeUpQueue, clock: SimulatedClock, queue: WakeQueue
) -> None:
    await wake_ups.request(clock.now() + 40 * SECOND)
    await wake_ups.request(clock.now() + 20 * SECOND)
    assert queue.counts() == (0, 2)


async def test_what_is_due_after_the_next_minute_is_left_to_its_sweeps(
    wake_ups: WakeUpQueue, clock: SimulatedClock, queue: WakeQueue
) -> None:
    assert await wake_ups.request(None) is None
    assert await wake_ups.request(clock.now() + HORIZON + SECOND) is None
    assert queue.counts() == (0, 0)


async def test_roles_are_free_again_before_their_names_come_back(
    engine: Engine, wake_ups: WakeUpQueue, clock: SimulatedClock, queue: WakeQueue
) -> None:
    for sent in range(1, 4):
        await wake_ups.request(clock.now())
        assert sum(queue.counts()) == sent
        clock.advance(64 * SPACING)


async def test_a_queue_that_is_gone_costs_a_warning_and_no_answer(
    engine: Engine, clock: SimulatedClock, queue: WakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    wake_ups = WakeUpQueue(engine.store, clock, queue.url + "-of-old")
    assert await wake_ups.request(clock.now()) is None
    assert "the sweep is not woken before its minute" in caplog.text
    await wake_ups.close()


def test_instants_are_never_rounded_to_before_themselves() -> None:
    for millis in range(0, 4000, 250):
        at = START + timedelta(milliseconds=millis)
        assert timedelta(0) <= EPOCH + rounded_up(at) * SPACING - at < SPACING


@pytest.mark.parametrize(("job", "sent"), [({}, 1), ({"delay_seconds": 20}, 1), ({"delay_seconds": 3600}, 0)])
def test_a_function_that_adds_a_job_has_it_swept_when_it_falls_due(
    tmp_path: Path, queue: WakeQueue, job: dict[str, Any], sent: int
) -> None:
    settings = small_settings(tmp_path)
    host = FunctionHost(replace(settings, functions=FunctionSettings(wake_queue=queue.url)))
    client = FunctionClient(host)
    client.ask("query", "GET", "/v1/jobs")
    assert sum(queue.counts()) == 0
    client.add(**job)
    assert sum(queue.counts()) == sent
    host.close()
