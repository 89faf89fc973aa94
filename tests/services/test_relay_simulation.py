"""Relays in random worlds: whatever jobs, sink, relays and clock do, every event arrives, in order per job."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.events.relay import Relay
from penstock.model.events import event_id
from penstock.model.ids import JobId, ShardId
from penstock.model.journal import ParkedState
from penstock.model.shards import ShardMember, shard_map
from penstock.model.subscriptions import SubscriptionState
from penstock.model.wire.subscriptions import ReplayRequest
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store import Shard
from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock
from tests.postgres import server
from tests.relay_names import relay_name
from tests.services.engine_steps import join, submit
from tests.services.relay_stage import NAME, RelayStage, plain
from tests.webhook_sink import Answer, SinkRequest, hang_up, local_sink, reply

STEPS = 150
_numbers = itertools.count()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RelayStage]:
    """An engine over three shards."""
    clock = SimulatedClock()
    store = await _open_shards(request.param, tmp_path, clock)
    engine = Engine(
        store, MemoryBroker(), FolderObjects(tmp_path / "objects", clock), Settings(), clock, random.Random(7)
    )
    await join(engine)
    async with local_sink() as sink:
        stage = RelayStage(engine, clock, sink)
        yield stage
        await stage.close()
    await engine.close()


async def _open_shards(kind: str, folder: Path, clock: SimulatedClock) -> ShardedStore:
    async def open_shard(number: ShardId, url: str) -> Shard:
        if kind == "sqlite":
            return await SqliteStore.open(folder / url, shard=number, clock=clock)
        return await PostgresStore.open(url, shard=number, clock=clock, connections=4)

    urls = [f"{number}.db" for number in range(3)]
    if kind == "postgres":
        running = server(18)
        urls = [await asyncio.to_thread(running.database, f"relay{next(_numbers)}") for _ in range(3)]
    members = shard_map(ShardMember(ShardId(number), url) for number, url in enumerate(urls))
    return await ShardedStore.open(members, open_shard, clock, random.Random(5))


class RandomSink:
    """Answers at random: well, with an error, by hanging up before or after it has taken the events, or with 410."""

    def __init__(self, stage: RelayStage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._usual = stage.sink.usual
        self.health = 1.0
        self.poison: set[str] = set()
        stage.sink.usual = self._answer
        stage.refuses = lambda id: id in self.poison

    def _answer(self, request: SinkRequest) -> Answer:
        if self._rng.random() < self.health:
            return self._usual(request)
        if self._rng.random() < 0.3:
            self._usual(request)
        paused = [reply(429, retry_after="30"), reply(503, retry_after="90")]
        return self._rng.choice([hang_up, reply(500), *paused, reply(302), reply(410)])


class RelayWorld:
    """Three shards, two relays for each, and what happens to them at random."""

    def __init__(self, stage: RelayStage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._sink = RandomSink(stage, rng)
        self._relays: list[tuple[Shard, Relay]] = []
        self._holders = itertools.count()
        self.jobs: list[JobId] = []

    async def begin(self) -> None:
        for shard in self._stage.engine.store.shards():
            for _ in range(2):
                await self._add_relay(shard)

    async def step(self) -> None:
        acts: list[Callable[[], Awaitable[object]]] = [
            self._submit,
            self._submit,
            self._stage.settle_all,
            self._change_sink,
            self._leap,
            self._crash,
        ]
        acts += [self._step_relay] * 6
        await self._rng.choice(acts)()
        await self._resume()

    async def heal(self) -> None:
        """Let all be well, and time pass until every schedule is over."""
        self._sink.health, self._sink.poison = 1.0, set()
        for _ in range(80):
            self._stage.clock.advance(timedelta(hours=1))
            # A relay that was cancelled may have disabled the subscription just before.
            await self._resume()
            await self._run_all()
        await self._stage.settle_all()
        if (await self._stage.engine.deliveries.replay(NAME, ReplayRequest(dead=True))).events:
            self._stage.clock.advance(timedelta(seconds=1))
        await self._run_all()

    async def _add_relay(self, shard: Shard) -> None:
        self._relays.append((shard, await self._stage.relay(f"r{next(self._holders)}", shard)))

    async def _submit(self) -> None:
        self.jobs += [(await submit(self._stage.engine)).id for _ in range(self._rng.randrange(1, 6))]

    async def _change_sink(self) -> None:
        self._sink.health = self._rng.choice([0.0, 0.5, 0.9, 1.0, 1.0])
        refused = [event_id(self._rng.choice(self.jobs), self._rng.randrange(1, 4)) for _ in self.jobs[:1]]
        self._sink.poison = set(self._rng.choice([refused, []]))

    async def _leap(self) -> None:
        self._stage.clock.advance(timedelta(seconds=self._rng.choice([1, 5, 60, 600])))

    async def _step_relay(self) -> None:
        _, relay = self._rng.choice(self._relays)
        await relay.step()

    async def _crash(self) -> None:
        """Cancel a relay in the middle of a step, or not, and forget it without a farewell."""
        shard, relay = self._relays.pop(self._rng.randrange(len(self._relays)))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.random() / 50):
                await relay.step()
        await self._add_relay(shard)

    async def _resume(self) -> None:
        known = await self._stage.engine.subscriptions.find(NAME)
        if known.state is not SubscriptionState.ACTIVE:
            self._stage.clock.advance(timedelta(milliseconds=5))
            await self._stage.engine.subscriptions.resume(NAME)
            known = await self._stage.engine.subscriptions.find(NAME)
        for _, relay in self._relays:
            relay.subscription = known

    async def _run_all(self) -> None:
        for _, relay in self._relays:
            while await relay.step() <= timedelta(0):
                pass


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("seed", range(3))
async def test_every_event_arrives_at_least_once_and_in_order(stage: RelayStage, seed: int, batch: int) -> None:
    rng = random.Random(seed)
    await stage.subscribe(batch=batch)
    world = RelayWorld(stage, rng)
    await world.begin()
    for _ in range(STEPS):
        await world.step()
    await world.heal()
    await check_arrivals(stage, world.jobs)


async def check_arrivals(stage: RelayStage, jobs: list[JobId]) -> None:
    """Every version of every job has arrived, in order, and nothing that was not committed."""
    arrivals = stage.arrivals()
    assert len(jobs) > 10
    versions = {plain(job): (await stage.engine.jobs.get(job)).version for job in jobs}
    assert {job: list(dict.fromkeys(found)) for job, found in arrivals.items()} == {
        job: list(range(1, version + 1)) for job, version in versions.items()
    }
    for shard in stage.engine.store.shards():
        assert await shard.read_parked(await relay_name(shard, NAME), ParkedState.WAITING, 10) == []
