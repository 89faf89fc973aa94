"""The shard map changes while other processes go by the old one: no job is lost, and no key makes a second one."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.batches import BatchKey
from penstock.model.errors import Conflict, PenstockError, StoreUnavailable
from penstock.model.ids import JobId, ShardId, shard_of
from penstock.model.job import Retention
from penstock.model.schedule import Every, Schedule
from penstock.model.shards import ShardState, shard_for_key
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store.seam import schedule_key
from penstock.testing.sweeps import AllShardSweeps
from tests.services.engine_steps import ADD, OTHER, request, submit
from tests.services.faulty_shards import FaultyShard, FaultyShards, key_at

KEYS = [f"key-{number}" for number in range(60)]
TWO = ShardId(2)
HOUR = timedelta(hours=1)
KEEP = Retention(HOUR, 2 * HOUR)


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


class Api:
    """A process: an engine over an orchestrator of its own. Its map is read when it must, or when a test says so."""

    def __init__(self, store: ShardedStore, engine: Engine) -> None:
        self.store = store
        self.engine = engine

    async def submit(self, key: str | None = None) -> JobId:
        return (await submit(self.engine, idempotency_key=key)).id

    async def jobs(self) -> int:
        return sum(count.jobs for count in await self.store.counts())


@pytest.fixture
async def open_api(case: FaultyShards, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Api]]]:
    engines: list[Engine] = []

    async def opened(shards: int = 2) -> Api:
        store = await case.orchestrator(range(shards))
        objects = FolderObjects(tmp_path / "objects", case.clock)
        engine = Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(len(engines)))
        await engine.catalog.declare([ADD, OTHER])
        engines.append(engine)
        return Api(store, engine)

    yield opened
    for engine in engines:
        await engine.tickets.close()


OpenApi = Callable[..., Awaitable[Api]]


def before_it_does(shard: FaultyShard, name: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Let something happen just before a shard does what it is asked for, once."""
    inside = getattr(shard.inside, name)

    async def acted(*args: Any, **more: Any) -> Any:
        delattr(shard.inside, name)
        await act()
        return await inside(*args, **more)

    setattr(shard.inside, name, acted)


async def drain(api: Api, number: ShardId) -> None:
    await api.store.admin.change(number, None, ShardState.DRAINING, keyed=False)


def schedule(case: FaultyShards, name: str) -> Schedule:
    now = case.clock.now()
    return Schedule(
        name=name, when=Every(timedelta(minutes=1)), type="add", params=b"{}", created_at=now, updated_at=now
    )


class TestRemoving:
    async def test_what_a_process_with_the_old_map_acknowledges_is_there(self, open_api: OpenApi) -> None:
        here, stale = await open_api(3), await open_api(3)
        await drain(here, TWO)
        await here.store.admin.remove(TWO, force=False)
        assert {stale.store.shard_for() for _ in range(99)} == {0, 1, 2}, "it still goes by the old map"
        jobs = [await stale.submit() for _ in range(30)]
        assert {shard_of(job) for job in jobs} == {0, 1}
        assert None not in await here.store.get(jobs)
        assert await here.jobs() == 30

    async def test_many_in_one_call_are_each_placed_again(self, open_api: OpenApi) -> None:
        here, stale = await open_api(3), await open_api(3)
        await drain(here, TWO)
        await here.store.admin.remove(TWO, force=False)
        answers = await stale.engine.jobs.submit([request() for _ in range(30)])
        assert not [one for one in answers if isinstance(one, PenstockError)]
        assert await here.jobs() == 30

    async def test_a_retry_by_hand_and_a_batch_are_placed_again_too(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here, stale = await open_api(3), await open_api(3)
        key = key_at(here.store, 2)
        ended = await here.engine.jobs.cancel(await here.submit(key_at(here.store, 0)))
        await drain(here, TWO)
        await here.store.admin.remove(TWO, force=False)
        await asyncio.gather(*(stale.engine.jobs.retry(ended.id) for _ in range(9)))
        batch = await stale.engine.jobs.submit_batch({0: request(), 1: request()}, BatchKey(key, b""))
        assert not [one for one in batch.values() if isinstance(one, PenstockError)]
        assert await here.jobs() == 12

    async def test_a_job_that_comes_at_the_last_moment_keeps_the_shard(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here = await open_api(3)
        await drain(here, TWO)
        before_it_does(case.shard(2), "admit", lambda: case.submit(here.store, 2))
        with pytest.raises(Conflict, match="1 jobs that have not ended"):
            await here.store.admin.remove(TWO, force=True)
        assert shard_of((await case.submit(here.store, 2)).id) == 2, "it takes jobs again"

    async def test_a_shard_that_was_left_closed_takes_jobs_once_it_is_active_again(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here = await open_api(3)
        await drain(here, TWO)
        await case.shard(2).inside.admit(jobs=False)
        await here.store.admin.change(TWO, None, ShardState.ACTIVE, keyed=None)
        assert shard_of((await case.submit(here.store, 2)).id) == 2


class TestGrowing:
    async def test_a_key_gives_the_same_job_before_and_after(self, open_api: OpenApi) -> None:
        here, other = await open_api(2), await open_api(2)
        before = {key: await here.submit(key) for key in KEYS}
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        assert {here.store.shard_for(key) for key in KEYS} == {0, 1, 2}
        assert {key: await here.submit(key) for key in KEYS} == before
        assert {key: await other.submit(key) for key in KEYS} == before
        assert await here.jobs() == len(KEYS)

    async def test_many_keys_in_one_call_give_the_same_jobs(self, open_api: OpenApi) -> None:
        here = await open_api(2)
        asked = [request(idempotency_key=key) for key in KEYS]
        before = await here.engine.jobs.submit(asked)
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        after = await here.engine.jobs.submit([*asked, request(idempotency_key="new")])
        assert [one.id for one in before if not isinstance(one, PenstockError)] == [
            one.id for one in after[:-1] if not isinstance(one, PenstockError)
        ]
        assert await here.jobs() == len(KEYS) + 1

    async def test_a_key_that_was_used_for_something_else_is_a_conflict_afterwards_too(self, open_api: OpenApi) -> None:
        here = await open_api(2)
        for key in KEYS:
            await here.submit(key)
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        answers = await here.engine.jobs.submit([request(idempotency_key=key, priority=9) for key in KEYS])
        assert {type(one).__name__ for one in answers} == {"KeyConflict"}

    async def test_a_process_with_the_old_map_makes_no_second_job(self, open_api: OpenApi) -> None:
        here, stale = await open_api(2), await open_api(2)
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        moved = [key for key in KEYS if here.store.shard_for(key) != stale.store.shard_for(key)]
        assert moved, "some keys live elsewhere now"
        first = [await here.submit(key) for key in moved[::2]] + [await stale.submit(key) for key in moved[1::2]]
        again = [await stale.submit(key) for key in moved[::2]] + [await here.submit(key) for key in moved[1::2]]
        assert first == again
        assert {shard_of(job) for job in first} == {2}

    async def test_while_the_ring_reaches_one_shard_after_the_other_no_key_makes_two_jobs(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here, fresh, stale = await open_api(2), await open_api(2), await open_api(2)
        made: dict[str, set[JobId]] = {}

        async def meanwhile() -> None:
            """Shard 0 knows the new ring, shard 1 does not: one process has read it, another has not."""
            await fresh.store.refresh()
            for key in KEYS:
                if (stale.store.shard_for(key), fresh.store.shard_for(key)) == (1, 2):
                    made[key] = {await fresh.submit(key), await stale.submit(key)}

        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=False)
        before_it_does(case.shard(1), "put_notices", meanwhile)
        await here.store.admin.change(TWO, None, None, keyed=True)
        assert made
        assert {key: {await here.submit(key)} for key in made} == made

    async def test_a_batch_gives_the_same_jobs_before_and_after(self, open_api: OpenApi) -> None:
        here = await open_api(2)
        asked = {0: request(), 1: request(), 2: request()}
        before = {key: await here.engine.jobs.submit_batch(asked, BatchKey(key, b"asked")) for key in KEYS[:20]}
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        for key, first in before.items():
            again = await here.engine.jobs.submit_batch(asked, BatchKey(key, b"asked"))
            assert {index: one.id for index, one in again.items() if not isinstance(one, PenstockError)} == {
                index: one.id for index, one in first.items() if not isinstance(one, PenstockError)
            }
        assert await here.jobs() == 60

    async def test_a_key_whose_former_shard_is_away_is_refused_and_no_other(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here = await open_api(2)
        former = {key: here.store.shard_for(key) for key in KEYS}
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        await case.falls(here.store, 1)
        answers = await here.engine.jobs.submit([request(idempotency_key=key) for key in KEYS])
        refused = {key for key, one in zip(KEYS, answers, strict=True) if isinstance(one, StoreUnavailable)}
        assert refused == {key for key in KEYS if 1 in (former[key], here.store.shard_for(key))}

    async def test_of_two_who_change_the_ring_at_once_one_is_refused(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here, other = await open_api(3), await open_api(3)
        before_it_does(
            case.shard(0), "change_notices", lambda: other.store.admin.change(ShardId(1), None, None, keyed=False)
        )
        with pytest.raises(Conflict, match="changed by another process"):
            await here.store.admin.change(TWO, None, None, keyed=False)
        await here.store.refresh()
        assert here.store.directory.map.ring == other.store.directory.map.ring
        assert here.store.directory.map.ring.shards == (0, 2)

    async def test_a_schedule_that_is_made_meanwhile_keeps_the_ring(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here = await open_api(2)
        moving = schedule(case, next(name for name in KEYS if _moves(here.store, name)))
        home = here.store.shard_for(schedule_key(moving.name))
        before_it_does(case.shard(0), "change_notices", lambda: case.shard(home).inside.put_schedule(moving, None))
        with pytest.raises(Conflict, match="1 schedules would change their place"):
            await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        assert here.store.directory.map.ring.shards == (0, 1)
        assert await here.store.get_schedules([moving.name]) != [None]

    async def test_a_schedule_of_a_process_with_the_old_map_is_made_at_its_new_place(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here, stale = await open_api(2), await open_api(2)
        name = next(name for name in KEYS if _moves(here.store, name))
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        assert await stale.store.put_schedule(schedule(case, name), None) is not None
        assert await here.store.get_schedules([name]) != [None]

    async def test_a_role_has_one_holder_though_its_home_moves(self, open_api: OpenApi) -> None:
        here, stale = await open_api(2), await open_api(2)
        assert await stale.store.acquire_role("autoscaler", "stale", HOUR) == 1
        for number in range(2, 9):
            await here.store.admin.add(f"shard {number}", None, 1.0, ShardState.ACTIVE, keyed=True)
            assert await here.store.acquire_role("autoscaler", "here", HOUR) is None


class TestForgetting:
    async def test_a_former_ring_is_forgotten_once_no_job_of_its_time_is_left(
        self, case: FaultyShards, open_api: OpenApi
    ) -> None:
        here, other = await open_api(2), await open_api(2)
        for key in KEYS[:9]:
            await here.engine.jobs.cancel(await here.submit(key))
        last = await here.submit(KEYS[9])
        case.clock.advance(timedelta(seconds=1))
        await here.store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)

        async def remembered() -> int:
            case.clock.advance(2 * HOUR + timedelta(seconds=1))
            await AllShardSweeps(here.store).prune(KEEP, 99)
            await here.engine.shards.forget_former_rings(KEEP)
            return len(here.store.directory.map.ring.before)

        assert await remembered() == 1, "one has not ended"
        assert await here.submit(KEYS[9]) == last
        await here.engine.jobs.cancel(last)
        assert await remembered() == 0
        asked = [case.shard(number).asked.count("find_keyed") for number in range(3)]
        for key in KEYS:
            await here.submit(key)
            await other.submit(key)
        assert [case.shard(number).asked.count("find_keyed") for number in range(3)] == asked
        assert await here.jobs() == len(KEYS)


def _moves(store: ShardedStore, name: str) -> bool:
    """Whether a third shard would take this schedule."""
    return shard_for_key(schedule_key(name), (*store.directory.map.ring.shards, TWO)) == TWO
