"""The engine over several shards: what one of them cannot do hurts no job of another."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.files import job_prefix
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, shard_of
from penstock.model.job import Claim, JobFilter, LogLine, Loss, Ticket
from penstock.model.lifecycle import State
from penstock.model.submission import Inserted, Submission
from penstock.model.wire.jobs import LogEntry
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.scheduler import Pruner
from tests.services.engine_steps import body, claim, join, lease, request, success, worker
from tests.services.faulty_shards import Behaviour, FaultyShards, key_at

WITHIN = 15.0
ILL = pytest.mark.parametrize("behaviour", [Behaviour.RAISES, Behaviour.HANGS])


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator()


class CountingBroker(MemoryBroker):
    """Counts the tickets that were published."""

    def __init__(self) -> None:
        super().__init__()
        self.published = 0

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        await super().publish(tickets)
        self.published += len(tickets)


@pytest.fixture
def broker() -> CountingBroker:
    return CountingBroker()


@pytest.fixture
async def engine(
    case: FaultyShards, store: ShardedStore, broker: CountingBroker, tmp_path: Path
) -> AsyncIterator[Engine]:
    objects = FolderObjects(tmp_path / "objects", case.clock)
    engine = Engine(store, broker, objects, Settings(), case.clock, random.Random(7))
    await join(engine)
    yield engine
    await engine.tickets.close()


async def submit_at(engine: Engine, store: ShardedStore, *shards: int) -> list[JobId]:
    """One job on each of the shards, by keys that live there."""
    asked = [request(idempotency_key=key_at(store, number)) for number in shards]
    return [one.job.id for one in await engine.jobs.submit(asked) if isinstance(one, Submission)]


async def claimed_by_shard(engine: Engine) -> dict[int, Claim]:
    return {shard_of(one.job): one for one in await claim(engine)}


async def test_a_batch_is_answered_job_by_job_when_one_shard_is_away(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    await case.falls(store, 1)
    answers = await engine.jobs.submit([request(idempotency_key=key_at(store, number)) for number in (0, 1, 2)])
    assert [type(answer) for answer in answers] == [Inserted, StoreUnavailable, Inserted]
    assert "shard 1" in str(answers[1])


async def test_jobs_without_a_key_are_spread_and_avoid_the_shard_that_is_away(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    spread = await engine.jobs.submit([request() for _ in range(60)])
    assert {shard_of(one.job.id) for one in spread if isinstance(one, Submission)} == {0, 1, 2}
    await case.falls(store, 1)
    spread = await engine.jobs.submit([request() for _ in range(60)])
    assert {shard_of(one.job.id) for one in spread if isinstance(one, Submission)} == {0, 2}


@ILL
async def test_tickets_of_a_shard_that_is_ill_are_claimed_once_it_is_well(
    case: FaultyShards, engine: Engine, store: ShardedStore, broker: CountingBroker, behaviour: Behaviour
) -> None:
    await submit_at(engine, store, 0, 1, 2)
    case.shard(1).behaviour = behaviour
    claiming = asyncio.ensure_future(claimed_by_shard(engine))
    await case.until(claiming.done)
    assert set(claiming.result()) == {0, 2}
    await case.until(lambda: 1 in store.unavailable())
    await case.heals(store, 1)
    await case.until(lambda: broker.published > 3)
    assert set(await claimed_by_shard(engine)) == {1}


@ILL
async def test_a_shard_that_is_ill_leaves_only_its_own_outcomes_unsure(
    case: FaultyShards, engine: Engine, store: ShardedStore, behaviour: Behaviour
) -> None:
    jobs = await submit_at(engine, store, 0, 1, 2)
    claims = await claimed_by_shard(engine)
    case.shard(1).behaviour = behaviour
    settling = asyncio.ensure_future(engine.worker_api.settle([success(one) for one in claims.values()]))
    await case.until(settling.done)
    assert [(one.job, one.loss) for one in settling.result()] == [(jobs[1], Loss.UNSURE)]
    await case.until(lambda: 1 in store.unavailable())
    await case.heals(store, 1)
    assert await engine.worker_api.settle([success(claims[1])]) == []
    assert [(await engine.jobs.get(job)).state for job in jobs] == [State.SUCCEEDED] * 3


@ILL
async def test_a_shard_that_is_ill_leaves_only_its_own_log_lines_unsure(
    case: FaultyShards, engine: Engine, store: ShardedStore, behaviour: Behaviour
) -> None:
    jobs = await submit_at(engine, store, 0, 1, 2)
    claims = (await claimed_by_shard(engine)).values()
    case.shard(1).behaviour = behaviour
    lines = (LogLine(case.clock.now(), "stdout", "hello"),)
    entries = [LogEntry(one.job, one.fence, lines) for one in claims]
    logging = asyncio.ensure_future(engine.worker_api.log(entries))
    await case.until(logging.done)
    assert [(one.job, one.loss) for one in logging.result()] == [(jobs[1], Loss.UNSURE)]
    assert [len((await engine.jobs.log(jobs[number], 0, 9)).lines) for number in (0, 2)] == [1, 1]


@ILL
async def test_a_shard_that_is_ill_leaves_only_its_own_leases_unsure(
    case: FaultyShards, engine: Engine, store: ShardedStore, behaviour: Behaviour
) -> None:
    await submit_at(engine, store, 0, 1, 2)
    claims = await claimed_by_shard(engine)
    case.shard(1).behaviour = behaviour
    leases = [lease(claims[number]) for number in (1, 2, 0)]
    renewing = asyncio.ensure_future(engine.worker_api.renew(worker(), leases))
    await case.until(renewing.done)
    assert [one.loss for one in renewing.result().renewals] == [Loss.UNSURE, None, None]


async def test_when_no_shard_answers_nothing_may_be_assumed(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    await submit_at(engine, store, 1)
    claims = await claimed_by_shard(engine)
    await case.falls(store, 1)
    with pytest.raises(StoreUnavailable):
        await engine.worker_api.settle([success(claims[1])])


async def test_what_is_declared_and_paused_stays_known_while_every_shard_is_away(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    await engine.queues.pause("sums", paused=True)
    before = await engine.catalog.read()
    for number in range(3):
        await case.falls(store, number)
    reading = await engine.catalog.read()
    assert (set(reading.types), reading.paused) == (set(before.types), frozenset({"sums"}))
    assert reading.at != before.at


async def test_a_list_names_the_shards_that_are_not_in_it(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    jobs = await submit_at(engine, store, 0, 1, 2)
    await case.falls(store, 1)
    page = await engine.jobs.list(JobFilter(), None, 10)
    assert {item.id for item in page.jobs} == {jobs[0], jobs[2]}
    assert page.missing_shards == (1,)


async def test_what_a_slow_shard_gives_too_late_is_given_back_to_it(
    case: FaultyShards, engine: Engine, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has its answer by then, so nobody would ever run those jobs under these leases."""
    _, slow = await submit_at(engine, store, 0, 1)
    go_on = asyncio.Event()
    inside = case.shard(1).inside
    claim_there = inside.claim

    async def claim_later(*asked: Any) -> list[Claim]:
        claims = await claim_there(*asked)
        await go_on.wait()
        return claims

    monkeypatch.setattr(inside, "claim", claim_later)
    assert set(await claimed_by_shard(engine)) == {0}
    assert (await engine.jobs.get(slow)).state is State.RUNNING
    go_on.set()
    async with asyncio.timeout(WITHIN):
        while (given_back := await engine.jobs.get(slow)).state is State.RUNNING:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0)
    assert (given_back.state, given_back.attempt, given_back.losses) == (State.QUEUED, 0, 0)


async def test_the_pruner_of_one_shard_leaves_the_objects_of_others_alone(
    case: FaultyShards, engine: Engine, store: ShardedStore
) -> None:
    upload = await engine.files.upload(body(b"1"), "text/plain")
    (made,) = await engine.jobs.submit([request(inputs={"in": upload.id}, idempotency_key=key_at(store, 1))])
    assert isinstance(made, Submission)
    case.clock.advance(timedelta(days=9))
    here, there, _ = store.shards()
    assert (here.shard, there.shard) == (0, 1)
    for shard in (here, there):
        await Pruner(engine, shard).sweep()
        assert await engine.objects.stat(f"{job_prefix(made.job.id)}/inputs/0") is not None
