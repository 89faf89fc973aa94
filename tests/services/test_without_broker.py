"""A broker that is out of reach costs time, never a job: workers look into the store."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.engine import Engine
from penstock.engine.claims import BROKERLESS_INTERVAL
from penstock.model.errors import BrokerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.lifecycle import State
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import LONG, claim, claim_one, dispatcher, join, submit, success

WITHIN = 15.0


class OutOfReach(MemoryBroker):
    """Answers nobody until it is `back`."""

    def __init__(self) -> None:
        super().__init__()
        self.back = False

    def _reach(self) -> None:
        if not self.back:
            raise BrokerUnavailable("the broker does not answer")

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        self._reach()
        await super().publish(tickets)

    async def take(self, *wanted: Any) -> list[Ticket]:
        self._reach()
        return await super().take(*wanted)

    async def depths(self, *among: Any) -> dict[BacklogKey, int]:
        self._reach()
        return await super().depths(*among)

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        self._reach()
        return await super().find_held(jobs)

    async def epoch(self) -> str:
        self._reach()
        return await super().epoch()


@pytest.fixture
async def broker(engine: Engine, clock: SimulatedClock) -> OutOfReach:
    broker = OutOfReach()
    engine.broker = engine.tickets._broker = broker  # noqa: SLF001 - the engine of the fixture, on another broker
    return broker


async def test_jobs_are_accepted_and_run_without_a_broker(engine: Engine, broker: OutOfReach) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    assert claimed.job == job.id
    assert await engine.worker_api.settle([success(claimed)]) == []
    assert (await engine.jobs.get(job.id)).state is State.SUCCEEDED


async def test_a_worker_that_waits_finds_a_job_that_comes_later(
    engine: Engine, broker: OutOfReach, clock: SimulatedClock
) -> None:
    await join(engine)
    waiting = asyncio.ensure_future(claim(engine, wait=LONG))
    async with asyncio.timeout(WITHIN):
        await clock.wait_for_sleepers()
        job = await submit(engine)
        clock.advance(BROKERLESS_INTERVAL)
        assert [one.job for one in await waiting] == [job.id]


async def test_a_worker_takes_its_types_from_any_queue_and_leaves_the_others(
    engine: Engine, broker: OutOfReach
) -> None:
    await join(engine)
    sent_elsewhere = await submit(engine, queue="other")
    other = await submit(engine, "other", {})
    own = await submit(engine)
    assert [one.job for one in await claim(engine, "w1", "other")] == [other.id]
    assert {one.job for one in await claim(engine, "w1", "add")} == {sent_elsewhere.id, own.id}


async def test_what_a_lost_broker_held_is_taken_from_the_store(
    engine: Engine, broker: OutOfReach, clock: SimulatedClock
) -> None:
    broker.back = True
    await join(engine)
    posting = dispatcher(engine)
    await posting.step()
    job = await submit(engine)
    broker.back = False
    assert await claim(engine) == []
    await posting.step()
    assert [one.job for one in await claim(engine)] == [job.id]


async def test_due_jobs_are_queued_and_posted_once_the_broker_is_back(
    engine: Engine, broker: OutOfReach, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submit(engine, delay_seconds=5)
    posting = dispatcher(engine)
    clock.advance(timedelta(seconds=5))
    await posting.step()
    assert (await engine.jobs.get(job.id)).state is State.QUEUED
    broker.back = True
    await posting.step()
    assert await broker.depths() == {BacklogKey("sums", "add"): 1}
    assert (await claim_one(engine)).job == job.id


class Silent(MemoryBroker):
    """Takes tickets and never says that it has them."""

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        await asyncio.Event().wait()


async def test_nobody_waits_long_for_a_broker_that_falls_silent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.window.PUBLISH_WITHIN", timedelta(milliseconds=50))
    engine.broker = engine.tickets._broker = Silent()  # noqa: SLF001 - the engine of the fixture, on another broker
    await join(engine)
    async with asyncio.timeout(10):
        jobs = {(await submit(engine)).id, (await submit(engine, delay_seconds=0)).id}
        await dispatcher(engine).step()
    assert {one.job for one in await claim(engine)} == jobs
