"""The services step by step, on real backends and a clock that only moves when told."""

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta
from typing import cast

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings, TimingSettings
from penstock.engine import Engine
from penstock.engine.files import job_prefix
from penstock.model.errors import Unavailable
from penstock.model.job import BacklogKey, FileLink
from penstock.model.lifecycle import State
from penstock.model.workers import WorkRequest
from penstock.scheduler import Reaper, run_service
from penstock.store import Capabilities, Shard
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import (
    ZERO,
    body,
    claim,
    claim_one,
    dispatcher,
    join,
    lease,
    pruner,
    reaper,
    request,
    submit,
    success,
    worker,
)
from tests.services.faulty_shards import Behaviour, FaultyShard, ThreadCalls


async def test_a_delayed_job_is_dispatched_when_it_is_due_and_not_before(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    job = await submit(engine, delay_seconds=0.7)
    posting = dispatcher(engine)
    assert await posting.step() == timedelta(seconds=0.7)
    assert await claim(engine) == []
    clock.advance(timedelta(seconds=0.7))
    await posting.step()
    assert (await claim_one(engine)).job == job.id


async def test_a_lost_worker_loses_its_job_to_another(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await submit(engine)
    lost = await claim_one(engine)
    clock.advance(timedelta(seconds=14))
    await reaper(engine).step()
    assert (await engine.jobs.get(lost.job)).state is State.RUNNING
    clock.advance(timedelta(seconds=2))
    await reaper(engine).step()
    await dispatcher(engine).step()
    heir = await claim_one(engine, "w2")
    assert (heir.job, heir.attempt, heir.fence) == (lost.job, 1, 3)


async def test_workers_can_be_heard_before_their_leases_are_taken_after_an_outage(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    await submit(engine)
    held = await claim_one(engine)
    (shard,) = engine.store.shards()
    faulty = FaultyShard(cast("SqliteStore", shard), ThreadCalls())
    reaping = Reaper(engine, cast("Shard", faulty), patience=timedelta(seconds=9))
    for behaviour in (Behaviour.WELL, Behaviour.RAISES, Behaviour.WELL):
        faulty.behaviour = behaviour
        with suppress(Unavailable):
            await reaping.step()
        assert (await engine.jobs.get(held.job)).state is State.RUNNING
        clock.advance(timedelta(seconds=8))
    await engine.worker_api.renew(worker("w1"), [lease(held)])
    clock.advance(timedelta(seconds=14))
    await reaping.step()
    assert (await engine.jobs.get(held.job)).state is State.RUNNING
    clock.advance(timedelta(seconds=2))
    await reaping.step()
    assert (await engine.jobs.get(held.job)).state is State.QUEUED


async def test_a_lost_ticket_is_posted_again_after_its_deadline(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await submit(engine)
    posting = dispatcher(engine)
    await posting.step()
    await engine.broker.take(WorkRequest(frozenset({"add"})), 10, ZERO)
    await posting.step()
    assert await claim(engine) == []
    clock.advance(timedelta(seconds=31))
    await reaper(engine).step()
    await posting.step()
    assert len(await claim(engine)) == 1


async def test_tickets_in_the_hands_of_a_lost_process_are_posted_again_within_seconds(
    engine: Engine, clock: SimulatedClock
) -> None:
    """An API, or a worker of its own, that dies between taking tickets and claiming their jobs."""
    await join(engine)
    posting = dispatcher(engine)
    job = await submit(engine, delay_seconds=1)
    clock.advance(timedelta(seconds=1))
    await posting.step()
    assert len(await engine.broker.take(WorkRequest(frozenset({"add"})), 10, ZERO)) == 1
    clock.advance(timedelta(seconds=5))
    await reaper(engine).step()
    await posting.step()
    assert (await claim_one(engine)).job == job.id


async def test_a_ticket_that_waits_in_the_broker_does_not_lapse(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await submit(engine)
    await submit(engine)
    await engine.broker.take(WorkRequest(frozenset({"add"})), 1, ZERO)
    clock.advance(timedelta(minutes=5))
    await reaper(engine).step()
    (shard,) = engine.store.shards()
    assert len(await shard.overdue_tickets(None, 9)) == 1
    assert (await shard.due_summary()).backlog == {BacklogKey("sums", "add")}


async def test_overdue_tickets_are_looked_at_in_turn(
    engine: Engine, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.scheduler.sweeper.OVERDUE_TICKETS", 2)
    await join(engine)
    for _ in range(4):
        await submit(engine)
    last = await submit(engine, "other", {})
    await engine.broker.take(WorkRequest(frozenset({"other"})), 1, ZERO)
    clock.advance(timedelta(minutes=5))
    reaping = reaper(engine)
    for _ in range(3):
        await reaping.step()
    await dispatcher(engine).step()
    assert [one.job for one in await claim(engine, "w1", "other")] == [last.id]


async def test_a_first_ticket_that_was_never_posted_is_posted_within_seconds(
    engine: Engine, clock: SimulatedClock
) -> None:
    """An API that dies between its commit and its publish leaves a ticket that nobody has."""
    await join(engine)
    posting = dispatcher(engine)
    await posting.step()
    job = await submit(engine)
    await engine.broker.take(WorkRequest(frozenset({"add"})), 10, ZERO)
    clock.advance(timedelta(seconds=5))
    await reaper(engine).step()
    await posting.step()
    assert (await claim_one(engine)).job == job.id


async def test_a_broker_that_lost_its_memory_gets_every_ticket_again(engine: Engine) -> None:
    await join(engine)
    for _ in range(5):
        await submit(engine)
    posting = dispatcher(engine)
    await posting.step()
    assert isinstance(engine.broker, MemoryBroker)
    engine.broker.lose()
    assert await claim(engine) == []
    await posting.step()
    assert len(await claim(engine)) == 5


class TestWindow:
    """The broker holds a window, the store the backlog."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(timing=TimingSettings(window_jobs=3))

    async def test_no_more_tickets_than_the_window_has_room_for(self, engine: Engine) -> None:
        await join(engine)
        await engine.jobs.submit([request() for _ in range(10)])
        posting = dispatcher(engine)
        await posting.step()
        await posting.step()
        assert await engine.broker.depths() == {BacklogKey("sums", "add"): 3}

    async def test_jobs_submitted_one_by_one_keep_to_the_window_too(self, engine: Engine) -> None:
        await join(engine)
        for _ in range(5):
            await submit(engine)
        assert sum((await engine.broker.depths()).values()) == 3

    async def test_the_backlog_keeps_priority_and_age(self, engine: Engine) -> None:
        await join(engine)
        plain = [await submit(engine) for _ in range(4)]
        urgent = await submit(engine, priority=9)
        late = await submit(engine, priority=0)
        posting, order = dispatcher(engine), list[str]()
        while len(order) < 6:
            await posting.step()
            order += [claimed.job for claimed in await claim(engine, limit=1)]
        first, rest = order[:3], order[3:]
        assert first == [job.id for job in plain[:3]] or urgent.id in first
        assert order.index(urgent.id) < order.index(plain[3].id)
        assert rest[-1] == late.id

    async def test_a_job_does_not_overtake_those_that_wait_in_the_store(self, engine: Engine) -> None:
        await join(engine)
        backlog = [await submit(engine) for _ in range(5)]
        await claim(engine, limit=2)
        newest = await submit(engine)
        order = list[str]()
        posting = dispatcher(engine)
        while len(order) < 4:
            await posting.step()
            order += [claimed.job for claimed in await claim(engine, limit=1)]
        assert order == [job.id for job in backlog[2:]] + [newest.id]


async def test_an_expired_job_ends_and_never_starts(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    job = await submit(engine, expires_at=clock.now() + timedelta(seconds=5))
    clock.advance(timedelta(seconds=6))
    assert await claim(engine) == []
    await reaper(engine).step()
    assert (await engine.jobs.get(job.id)).state is State.EXPIRED


async def test_ended_jobs_leave_after_their_retention_with_what_they_own(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    upload = await engine.files.upload(body(b"1"), "text/plain")
    kept = await submit(engine, retry_policy="none")
    gone = await submit(engine, inputs={"in": upload.id})
    for claimed in await claim(engine):
        if claimed.job == gone.id:
            await engine.worker_api.settle([success(claimed)])
    await engine.jobs.cancel(kept.id, force=True)
    clock.advance(timedelta(days=8))
    await pruner(engine).step()
    assert await engine.store.get([gone.id]) == [None]
    assert await engine.objects.stat(f"{job_prefix(gone.id)}/inputs/0") is None
    assert (await engine.jobs.get(kept.id)).state is State.CANCELLED
    clock.advance(timedelta(days=23))
    await pruner(engine).step()
    assert await engine.store.get([kept.id]) == [None]


async def test_where_rows_expire_by_themselves_no_job_is_deleted(
    engine: Engine, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteStore, "capabilities", Capabilities(rows_expire=True))
    await join(engine)
    job = await submit(engine)
    await engine.jobs.cancel(job.id)
    clock.advance(timedelta(days=365))
    await pruner(engine).step()
    assert (await engine.jobs.get(job.id)).state is State.CANCELLED


async def test_objects_of_lost_attempts_are_swept_and_linked_ones_kept(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await submit(engine)
    zombie = await claim_one(engine)
    digest = hashlib.sha256(b"x").hexdigest()
    orphan = await engine.worker_api.write_output(lease(zombie), 0, body(b"x"), "text/plain", digest)
    clock.advance(timedelta(seconds=16))
    await reaper(engine).step()
    await dispatcher(engine).step()
    heir = await claim_one(engine)
    linked = await engine.worker_api.write_output(lease(heir), 0, body(b"x"), "text/plain", digest)
    await engine.worker_api.settle([success(heir, outputs=(FileLink("out", linked),))])
    clock.advance(timedelta(days=2))
    assert await pruner(engine).sweep() == 1
    assert await engine.objects.stat(orphan.key) is None
    assert await engine.objects.stat(linked.key) == linked


async def test_a_service_goes_on_after_a_step_that_failed() -> None:
    steps = asyncio.Queue[str]()

    async def step() -> timedelta:
        steps.put_nowait("stepped")
        if steps.qsize() == 1:
            raise ValueError("broken once")
        return timedelta(hours=1)

    wake = asyncio.Event()
    service = asyncio.create_task(run_service("broken", step, wake))
    while steps.qsize() < 2:
        wake.set()
        await asyncio.sleep(0)
    service.cancel()
    assert steps.qsize() >= 2
