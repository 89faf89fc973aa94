"""Relays that are killed at any point, replaced, or stale lose nothing, and keep the order of each job's events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from penstock.engine import Engine
from penstock.engine.leader import HELD_FOR
from penstock.events.relay import Relay
from penstock.model.errors import StoreUnavailable
from penstock.model.events import event_id
from penstock.model.ids import JobId
from penstock.store import Shard
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import join, submit
from tests.services.relay_stage import NAME, RelayStage, plain
from tests.webhook_sink import hang, local_sink


@pytest.fixture
async def stage(engine: Engine, clock: SimulatedClock) -> AsyncIterator[RelayStage]:
    await join(engine)
    async with local_sink() as sink:
        stage = RelayStage(engine, clock, sink)
        yield stage
        await stage.close()


class Killed(Exception):
    """The process of a relay ends here."""


class DeadlyShard:
    """A shard whose caller is killed at one of its calls: before it, or after it was carried out."""

    def __init__(self, inside: Shard, turn: int, *, after: bool) -> None:
        self._inside = inside
        self._turn = turn
        self._after = after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inside, name)
        return self._wrap(found) if asyncio.iscoroutinefunction(found) else found

    def _wrap(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*args: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls < self._turn:
                return await call(*args, **more)
            if self._after:
                await call(*args, **more)
            raise Killed

        return asked


async def run(relay: Relay) -> None:
    """Step until it rests."""
    while await relay.step() <= timedelta(0):
        pass


def check_order(arrivals: dict[str, list[int]]) -> None:
    """First arrivals of each job are in order, from its first event on."""
    for job, versions in arrivals.items():
        assert list(dict.fromkeys(versions)) == list(range(1, max(versions) + 1)), (job, versions)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_relay_that_is_killed_at_any_call_loses_nothing(stage: RelayStage, after: bool) -> None:
    await stage.subscribe()
    jobs: list[JobId] = []
    for turn in range(1, 15):
        jobs += [(await submit(stage.engine)).id for _ in range(2)]
        await stage.settle_all()
        shard = cast("Shard", DeadlyShard(stage.shard, turn, after=after))
        with suppress(Killed):
            await run(await stage.relay(f"r{turn}", shard))
        stage.clock.advance(HELD_FOR)
    await run(await stage.relay("last"))
    assert {job: max(versions) for job, versions in stage.arrivals().items()} == {plain(job): 3 for job in jobs}
    check_order(stage.arrivals())


async def test_what_was_sent_but_not_written_is_sent_again_under_the_same_ids(stage: RelayStage) -> None:
    await stage.subscribe()
    job = await submit(stage.engine)
    with pytest.raises(Killed):
        await run(await stage.relay("r1", cast("Shard", UnwritableShard(stage.shard, Killed()))))
    stage.clock.advance(HELD_FOR)
    await run(await stage.relay("r2"))
    assert stage.taken == [event_id(job.id, 1)] * 2


class UnwritableShard:
    """A shard that takes no write of a relay after its first, which says where it begins."""

    def __init__(self, inside: Shard, error: Exception) -> None:
        self._inside = inside
        self.error: Exception | None = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    async def save_relay(self, *args: Any) -> bool:
        if self.error is not None and args[-1].log:
            raise self.error
        return await self._inside.save_relay(*args)


async def test_while_the_store_takes_no_writes_nothing_is_sent_again(stage: RelayStage) -> None:
    await stage.subscribe()
    job = await submit(stage.engine)
    shard = UnwritableShard(stage.shard, StoreUnavailable("the disk is full"))
    relay = await stage.relay("r1", cast("Shard", shard))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await relay.step()
    shard.error = None
    await run(relay)
    assert stage.taken == [event_id(job.id, 1)]
    assert (await stage.shard.relay_totals(NAME)).delivered == 1


async def test_a_relay_that_lost_its_role_writes_nothing(stage: RelayStage) -> None:
    await stage.subscribe()
    stale, fresh = await stage.relay("impatient"), await stage.relay("r2")
    await run(stale)
    job = await submit(stage.engine)
    stage.sink.answers = [hang]
    step = asyncio.ensure_future(stale.step())
    await stage.sink.asked.wait()
    # The role passes on while an answer is awaited; the stale relay learns of it when it writes.
    await stage.shard.release_role("relay/orders", "impatient")
    await run(fresh)
    assert await asyncio.wait_for(step, 5) > timedelta(0)
    assert stage.taken == [event_id(job.id, 1)]
    assert await stage.parked() == []
    totals = await stage.shard.relay_totals(NAME)
    assert (totals.delivered, totals.failed) == (1, 0)


async def test_of_two_relays_one_delivers(stage: RelayStage) -> None:
    await stage.subscribe()
    first, second = await stage.relay("r1"), await stage.relay("r2")
    jobs = [await submit(stage.engine) for _ in range(20)]
    await asyncio.gather(run(first), run(second))
    assert sorted(stage.taken) == sorted(event_id(job.id, 1) for job in jobs)


async def test_a_relay_that_is_ended_while_it_delivers_keeps_what_was_delivered(stage: RelayStage) -> None:
    await stage.subscribe()
    relay = await stage.relay("r1")
    jobs = [await submit(stage.engine) for _ in range(4)]
    stuck = event_id(jobs[3].id, 1)
    stage.refuses = lambda id: id == stuck
    stage.failing = hang
    step = asyncio.ensure_future(relay.step())
    while len(stage.taken) < 3:
        stage.sink.asked.clear()
        await stage.sink.asked.wait()
    step.cancel()
    with suppress(asyncio.CancelledError):
        await step
    await relay.resign()
    stage.refuses = lambda _: False
    await run(await stage.relay("r2"))
    assert sorted(stage.taken) == sorted(event_id(job.id, 1) for job in jobs)
