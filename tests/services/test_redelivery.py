"""What the engine does with a broker that redelivers, and with what a broker declares that it cannot do."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import BrokerCapabilities
from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.window import REPUBLISH_AFTER
from penstock.model.errors import BrokerUnavailable, StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Ticket
from penstock.model.lifecycle import State
from penstock.model.workers import WorkRequest
from penstock.objects.folder import FolderObjects
from penstock.scheduler.dispatcher import KEPT_FOR
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ZERO, claim, claim_one, dispatcher, join, reaper, submit

SECOND = timedelta(seconds=1)


class Redelivering(MemoryBroker):
    """Notes what is discarded, and in which state the job was then. It has no epoch and does not know what it holds."""

    capabilities = BrokerCapabilities(finds_held=False, epochs=False, redelivers=True)

    def __init__(self, store: SqliteStore) -> None:
        super().__init__()
        self._store = store
        self.discarded_in: dict[JobId, State] = {}
        self.away = False

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        self._reach()
        await super().publish(tickets)

    async def depths(self, *among: Any) -> Any:
        self._reach()
        return await super().depths(*among)

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        for job in await self._store.get([ticket.job for ticket in tickets]):
            assert job is not None
            self.discarded_in.setdefault(job.id, job.state)

    async def epoch(self) -> str:
        raise AssertionError("it has none")

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        raise AssertionError("it does not know")

    def _reach(self) -> None:
        if self.away:
            raise BrokerUnavailable("the broker does not answer")


@pytest.fixture
async def engine(tmp_path: Path, clock: SimulatedClock, settings: Settings) -> AsyncIterator[Engine]:
    store = await SqliteStore.open(tmp_path / "penstock.db", clock=clock)
    objects = FolderObjects(tmp_path / "objects", clock=clock)
    engine = Engine(store, Redelivering(store), objects, settings, clock, random.Random(7))
    await join(engine)
    yield engine
    await engine.close()


@pytest.fixture
def broker(engine: Engine) -> Redelivering:
    assert isinstance(engine.broker, Redelivering)
    return engine.broker


async def test_a_ticket_is_discarded_after_its_job_was_claimed(engine: Engine, broker: Redelivering) -> None:
    jobs = [await submit(engine) for _ in range(3)]
    assert len(await claim(engine)) == 3
    assert broker.discarded_in == {job.id: State.RUNNING for job in jobs}


async def test_the_ticket_of_a_job_that_is_gone_is_discarded_too(engine: Engine, broker: Redelivering) -> None:
    job = await submit(engine)
    await engine.jobs.cancel(job.id)
    assert await claim(engine) == []
    assert broker.discarded_in == {job.id: State.CANCELLED}


async def test_a_ticket_is_not_discarded_while_its_shard_gives_no_answer(
    engine: Engine, broker: Redelivering, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await submit(engine)

    async def refuse(*_: object) -> None:
        raise StoreUnavailable("shard 0 does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "claim", refuse)
        with pytest.raises(StoreUnavailable):
            await claim(engine)
    assert broker.discarded_in == {}
    await clock.wait_for_sleepers()
    clock.advance(REPUBLISH_AFTER)
    while job.id not in broker.discarded_in:
        await clock.sleep(ZERO)
    # Published again first, so that it is never without a ticket.
    assert broker.discarded_in == {job.id: State.QUEUED}
    assert (await claim_one(engine)).job == job.id


async def test_tickets_that_the_broker_did_not_take_are_published_again(
    engine: Engine, broker: Redelivering, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their deadline is too long to wait for."""
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBroker, "publish", _refuse)
        job = await submit(engine)
    await clock.wait_for_sleepers()
    clock.advance(REPUBLISH_AFTER)
    while job.id not in broker.discarded_in:
        await clock.sleep(ZERO)
    assert (await claim_one(engine)).job == job.id


async def _refuse(*_: object) -> None:
    raise BrokerUnavailable("the broker does not answer")


async def test_a_lost_ticket_waits_for_the_long_deadline(
    engine: Engine, settings: Settings, clock: SimulatedClock
) -> None:
    posting = dispatcher(engine)
    job = await submit(engine)
    await engine.broker.take(WorkRequest(frozenset({"add"})), 10, ZERO)
    clock.advance(timedelta(seconds=settings.timing.redelivered_ticket_seconds) - SECOND)
    await reaper(engine).step()
    await posting.step()
    assert await claim(engine) == []
    clock.advance(SECOND)
    await reaper(engine).step()
    await posting.step()
    assert (await claim_one(engine)).job == job.id


async def test_only_a_lasting_outage_gives_up_the_tickets_of_a_broker_that_redelivers(
    engine: Engine, broker: Redelivering, clock: SimulatedClock
) -> None:
    (shard,) = engine.store.shards()
    posting = dispatcher(engine)
    await submit(engine)
    await submit(engine, "other", {}, delay_seconds=1)
    clock.advance(SECOND)
    broker.away = True
    await posting.step()
    assert len((await shard.due_summary()).backlog) == 1
    clock.advance(KEPT_FOR)
    await posting.step()
    assert len((await shard.due_summary()).backlog) == 2
