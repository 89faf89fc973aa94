"""The engine on SQS: jobs by ticket from submit to settle, how many requests that takes, and tickets that get lost."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.aws import AwsService
from penstock.broker.sqs import QueueTerms, SqsBroker
from penstock.config import BrokerSettings, Settings, TimingSettings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.model.job import Claim
from penstock.model.lifecycle import State
from penstock.model.workers import WorkRequest
from penstock.objects.folder import FolderObjects
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.emulators import ministack, use_emulator
from tests.services.engine_steps import LONG, ZERO, claim, dispatcher, join, reaper, request, submit, success

SINGLE_REQUESTS = 1.3
BATCH_REQUESTS = 0.5
"""The most requests to SQS for each job: to send, receive and delete its ticket."""

ADDED = WorkRequest(frozenset({"add"}))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The calls that are made to SQS."""
    use_emulator(monkeypatch, ministack())
    calls, make_call = Counter[str](), AwsService.call

    async def count(self: AwsService, action: str, **arguments: Any) -> dict[str, Any]:
        calls[action] += 1
        return await make_call(self, action, **arguments)

    monkeypatch.setattr(AwsService, "call", count)
    return calls


@pytest.fixture
def settings() -> Settings:
    return Settings(broker=BrokerSettings(url="sqs://engine"), timing=TimingSettings(depths_seconds=2))


@pytest.fixture
def visibility() -> timedelta:
    return timedelta(seconds=60)


@pytest.fixture
async def broker(calls: Counter[str], visibility: timedelta, request: pytest.FixtureRequest) -> SqsBroker:
    terms = QueueTerms(visibility=visibility)
    prefix = f"engine-{random.Random(request.node.name).getrandbits(32):08x}"
    return await SqsBroker.open(prefix, SystemClock(), terms, deadline=timedelta(seconds=20), signals=False)


@pytest.fixture
async def engine(tmp_path: Path, clock: SimulatedClock, settings: Settings, broker: SqsBroker) -> AsyncIterator[Engine]:
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    objects = FolderObjects(tmp_path / "objects", clock=clock)
    engine = Engine(store, broker, objects, settings, clock, random.Random(7))
    await join(engine)
    yield engine
    await engine.close()


async def run(engine: Engine, jobs: int) -> list[Claim]:
    """Claim and settle so many jobs, as a worker with room for twenty."""
    claims: list[Claim] = []
    while len(claims) < jobs:
        claims += (got := await claim(engine, "w1", "add", limit=20, wait=LONG))
        assert await engine.worker_api.settle([success(one) for one in got]) == []
    await engine.broker.close()
    return claims


async def test_two_hundred_jobs_in_a_batch_run_by_ticket(engine: Engine, calls: Counter[str]) -> None:
    await engine.jobs.submit([request() for _ in range(200)])
    claims = await run(engine, 200)
    assert len({one.job for one in claims}) == 200
    ended = [await engine.jobs.get(one.job) for one in claims]
    assert {job.state for job in ended} == {State.SUCCEEDED}
    assert calls["DeleteMessageBatch"] == calls["SendMessageBatch"] == 20
    assert calls.total() / 200 <= BATCH_REQUESTS, calls


async def test_jobs_that_are_submitted_one_by_one_take_little_more_than_their_send(
    engine: Engine, calls: Counter[str]
) -> None:
    for _ in range(100):
        await submit(engine)
        await engine.tickets.close()  # until its ticket is sent
    assert calls["SendMessageBatch"] == 100
    assert len({one.job for one in await run(engine, 100)}) == 100
    assert calls.total() / 100 <= SINGLE_REQUESTS, calls


async def test_jobs_of_a_purged_queue_get_their_tickets_again_at_the_deadline(
    engine: Engine, broker: SqsBroker, settings: Settings, clock: SimulatedClock
) -> None:
    jobs = [await submit(engine) for _ in range(3)]
    await engine.tickets.close()
    (queue,) = broker._queues.known(ADDED)  # noqa: SLF001
    await broker._messages._service.call("PurgeQueue", QueueUrl=queue.url)  # noqa: SLF001
    posting = dispatcher(engine)
    await posting.step()
    assert await claim(engine, "w1", "add") == []
    clock.advance(timedelta(seconds=settings.timing.redelivered_ticket_seconds))
    await reaper(engine).step()
    await posting.step()
    assert {one.job for one in await run(engine, 3)} == {job.id for job in jobs}


@pytest.mark.parametrize("visibility", [timedelta(seconds=1)])
async def test_the_job_of_a_worker_that_died_with_its_ticket_is_claimed_by_another(
    engine: Engine, broker: SqsBroker
) -> None:
    job = await submit(engine)
    await engine.tickets.close()
    assert [one.job for one in await broker.take(ADDED, 10, ZERO)] == [job.id]
    assert [one.job for one in await run(engine, 1)] == [job.id]
