"""Due jobs that wait in the store, behind the broker's window, are claimed from there."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock.config import Settings, TimingSettings
from penstock.engine import Engine
from penstock.engine.window import CHECK_INTERVAL, BacklogHints
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.ids import JobId, ShardId
from penstock.model.job import BacklogKey, Claim
from penstock.model.lifecycle import State
from penstock.store import Share
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import LONG, claim, join, request, submit, success

HERE = ShardId(0)
A, B = BacklogKey("a", "add"), BacklogKey("b", "add")


@pytest.fixture
def settings() -> Settings:
    return Settings(timing=TimingSettings(window_jobs=3))


async def submit_backlog(engine: Engine, jobs: int, **more: object) -> list[str]:
    """Jobs that find no room in the window, in their order."""
    answers = await engine.jobs.submit([request(**more) for _ in range(jobs)])  # type: ignore[arg-type]
    assert await engine.broker.depths() == {}
    return [answer.id for answer in answers if not isinstance(answer, PenstockError)]


async def test_a_backlog_is_claimed_without_tickets_in_its_order(engine: Engine) -> None:
    await join(engine)
    jobs = await submit_backlog(engine, 10)
    assert [one.job for one in await claim(engine, limit=4)] == jobs[:4]
    assert [one.job for one in await claim(engine, limit=10)] == jobs[4:]


async def test_a_job_claimed_from_a_backlog_is_settled_like_any_other(engine: Engine) -> None:
    await join(engine)
    (first, *_) = await submit_backlog(engine, 5)
    claims = await claim(engine, limit=1)
    assert await engine.worker_api.settle([success(claims[0], 3)]) == []
    assert (await engine.jobs.get(claims[0].job)).state is State.SUCCEEDED
    assert claims[0].job == first


async def test_tickets_are_taken_before_the_backlog(engine: Engine) -> None:
    await join(engine)
    ticketed = [(await submit(engine)).id for _ in range(3)]
    behind = [(await submit(engine)).id for _ in range(3)]
    assert [one.job for one in await claim(engine, limit=3)] == ticketed
    assert [one.job for one in await claim(engine, limit=3)] == behind


async def test_queues_share_what_a_taker_can_take(engine: Engine) -> None:
    await join(engine)
    await submit_backlog(engine, 10)
    await submit_backlog(engine, 10, type="other")
    first = Counter(one.queue for one in await claim(engine, limit=6))
    assert first == {"sums": 3, "other": 3}


async def test_a_queue_without_a_backlog_leaves_its_share_to_the_others(engine: Engine) -> None:
    await join(engine)
    await submit_backlog(engine, 10)
    assert len(await claim(engine, limit=8)) == 8


async def test_a_job_that_the_worker_cannot_run_stays_in_the_backlog(engine: Engine) -> None:
    """It is of a declared type, but in a queue that belongs to another."""
    await join(engine)
    foreign = await submit(engine, "other", {}, queue="sums", scheduled_at="2020-01-01T00:00:00Z")
    own = await submit_backlog(engine, 4)
    assert [one.job for one in await claim(engine, "w1", "add", limit=10)] == own
    assert (await engine.jobs.get(foreign.id)).state is State.QUEUED


async def test_a_paused_backlog_waits(engine: Engine) -> None:
    await join(engine)
    await submit_backlog(engine, 5)
    await engine.queues.pause("sums", paused=True)
    assert await claim(engine) == []
    await engine.queues.pause("sums", paused=False)
    assert len(await claim(engine)) == 5


async def test_a_claim_that_is_cancelled_leaves_the_backlog_as_it_was(
    engine: Engine, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    jobs = await submit_backlog(engine, 5)
    (shard,) = engine.store.shards()
    claim_next, asked = shard.claim_next, asyncio.Event()

    async def told(*call: Any) -> list[Claim]:
        asked.set()
        return await claim_next(*call)

    monkeypatch.setattr(shard, "claim_next", told)
    taking = asyncio.ensure_future(claim(engine, wait=LONG))
    await asked.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    clock.advance(CHECK_INTERVAL)
    again = await claim(engine)
    assert [(one.job, one.attempt) for one in again] == [(job, 1) for job in jobs]


async def test_a_backlog_that_cannot_be_read_keeps_no_claim_from_the_next_ticket(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    (shard,) = engine.store.shards()
    asked = asyncio.Event()

    async def down(*call: Any) -> list[Claim]:
        asked.set()
        raise StoreUnavailable("the shard is down")

    monkeypatch.setattr(shard, "claim_next", down)
    taking = asyncio.ensure_future(claim(engine, wait=LONG))
    await asked.wait()
    job = await submit(engine)
    assert [one.job for one in await taking] == [job.id]


def claimed(backlog: BacklogKey) -> Claim:
    return Claim(
        job=JobId("00000000-0000-7000-8000-000000000000"),
        queue=backlog.queue,
        type=backlog.type,
        attempt=1,
        fence=1,
        lease_seconds=15,
    )


class TestLines:
    """When a backlog is checked."""

    def test_one_that_was_never_checked_is(self, clock: SimulatedClock) -> None:
        hints = BacklogHints(clock)
        assert hints.to_check(HERE, [A, B]) == [A, B]

    def test_one_that_came_to_its_end_rests(self, clock: SimulatedClock) -> None:
        hints = BacklogHints(clock)
        hints.record_check(HERE, [Share("a", ["add"], 2), Share("b", ["add"], 2)], [claimed(A), claimed(A), claimed(B)])
        assert hints.to_check(HERE, [A, B]) == [A]
        clock.advance(CHECK_INTERVAL - timedelta(milliseconds=1))
        assert hints.to_check(HERE, [B]) == []
        clock.advance(timedelta(milliseconds=1))
        assert hints.to_check(HERE, [B]) == [B]

    def test_one_behind_many_tickets_is(self, clock: SimulatedClock) -> None:
        hints = BacklogHints(clock)
        hints.record_check(HERE, [Share("a", ["add"], 2)], [])
        hints.mark_full([(HERE, A)])
        assert hints.to_check(HERE, [A]) == [A]
        assert hints.to_check(ShardId(1), [A]) == [A]
