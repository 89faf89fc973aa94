"""An idempotency key in a transaction that has not ended concerns the jobs under it, and no others."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.batches import BatchKey
from penstock.model.clock import SystemClock
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.job import Job, Retention
from penstock.model.shards import ShardMember, shard_map
from penstock.model.submission import Held, Inserted, Known
from penstock.model.wire.jobs import SubmitRequest
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store import Shard
from penstock.store.postgres import PostgresStore
from penstock.store.postgres import submit as submits
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import TICKET, StoreStage
from tests.postgres import database, new_store
from tests.services.engine_steps import join, request, submit

PROMPTLY = 20.0


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with new_store(18, None) as store:
        yield store


@pytest.fixture
def stage(store: PostgresStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


@pytest.fixture
def open_transaction(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database(18)) as connection:
        yield connection


def hold(connection: psycopg.Connection[Any], *keys: str) -> None:
    for key in keys:
        connection.execute(
            "SELECT penstock.submit(type => 'mail', idempotency_key => %s, allow_unknown => true)", (key,)
        )


async def test_only_the_jobs_under_the_key_are_put_off(
    store: PostgresStore, stage: StoreStage, open_transaction: psycopg.Connection[Any]
) -> None:
    hold(open_transaction, "held", "held-too")
    keys = [None, "free", "held", None, "held-too", "free-too", "held"]
    asked = [stage.new(key=key) for key in keys]
    async with asyncio.timeout(PROMPTLY):
        answers = await store.submit(asked, TICKET)
    assert [isinstance(answer, Held) for answer in answers] == [str(key).startswith("held") for key in keys]
    made = [answer.id for answer in answers if isinstance(answer, Inserted)]
    assert made == [new.id for new in asked if not str(new.key).startswith("held")]
    assert [job.id for job in reversed(await stage.all_jobs())] == made


async def test_once_the_transaction_has_ended_its_keys_are_like_any_others(
    store: PostgresStore, stage: StoreStage, open_transaction: psycopg.Connection[Any]
) -> None:
    hold(open_transaction, "committed")
    (held,) = await store.submit([stage.new(key="committed")], TICKET)
    with pytest.raises(StoreUnavailable, match="committed"):
        held.job  # noqa: B018 - it raises
    open_transaction.commit()
    (met,) = await store.submit([stage.new(key="committed")], TICKET)
    assert (type(met), met.conflict) == (Known, True)
    hold(open_transaction, "given-up")
    (held,) = await store.submit([stage.new(key="given-up")], TICKET)
    open_transaction.rollback()
    (made,) = await store.submit([stage.new(key="given-up")], TICKET)
    assert (type(held), type(made)) == (Held, Inserted)


async def test_a_key_that_is_known_to_be_held_holds_up_no_batch_again(
    store: PostgresStore, stage: StoreStage, open_transaction: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other batches wait for it once; from then on it is looked at by itself first."""
    hold(open_transaction, "held")
    await store.submit([stage.new(key="held")], TICKET)
    monkeypatch.setattr("penstock.store.postgres.submit.PATIENCE", timedelta(seconds=PROMPTLY) * 10)
    async with asyncio.timeout(PROMPTLY):
        answers = await store.submit([stage.new(key="held"), stage.new(key="free")], TICKET)
    assert [type(answer) for answer in answers] == [Held, Inserted]


async def test_many_held_keys_are_told_together(
    store: PostgresStore, stage: StoreStage, open_transaction: psycopg.Connection[Any]
) -> None:
    keys = [f"k{number}" for number in range(300)]
    hold(open_transaction, *keys[::2])
    async with asyncio.timeout(PROMPTLY):
        answers = await store.submit([stage.new(key=key) for key in keys], TICKET)
    assert [isinstance(answer, Held) for answer in answers] == [number % 2 == 0 for number in range(300)]


@pytest.mark.parametrize("step", ["_find_existing", "jobs_by_id"])
async def test_a_key_whose_job_is_pruned_while_it_is_read_is_free(
    store: PostgresStore, stage: StoreStage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await stage.end_job(key="k")
    read, pruned = getattr(submits, step), list[int]()

    async def after_a_prune(*asked: Any) -> Any:
        pruned.append((await store.prune(Retention(timedelta(0), timedelta(0)), 99)).jobs)
        return await read(*asked)

    monkeypatch.setattr(submits, step, after_a_prune)
    (answer,) = await store.submit([stage.new(key="k")], TICKET)
    assert (type(answer), pruned) == (Inserted, [1])


class TestEngine:
    """Everything above the store."""

    @pytest.fixture
    async def orchestrator(self, store: PostgresStore) -> AsyncIterator[ShardedStore]:
        async def open_shard(number: ShardId, url: str) -> Shard:
            return await PostgresStore.open(url, shard=number)

        members = [ShardMember(store.shard, database(18))]
        opened = await ShardedStore.open(shard_map(members), open_shard, SystemClock(), random.Random(5))
        yield opened
        await opened.close()

    @pytest.fixture
    async def engine(self, orchestrator: ShardedStore, tmp_path: Path) -> Engine:
        clock = SystemClock()
        objects = FolderObjects(tmp_path / "objects", clock=clock)
        engine = Engine(orchestrator, MemoryBroker(), objects, Settings(), clock, random.Random(7))
        await join(engine)
        return engine

    async def test_those_who_submit_at_the_same_time_are_answered(
        self, engine: Engine, open_transaction: psycopg.Connection[Any]
    ) -> None:
        hold(open_transaction, "held")
        keys = [None, "held", "free", None, "held", "free-too"]
        for _ in range(3):
            async with asyncio.timeout(PROMPTLY):
                answers = await asyncio.gather(*(one(engine, key) for key in keys), return_exceptions=True)
            assert [isinstance(answer, StoreUnavailable) for answer in answers] == [key == "held" for key in keys]
            assert engine.store.unavailable() == ()

    async def test_in_one_request_each_job_has_its_own_answer(
        self, engine: Engine, open_transaction: psycopg.Connection[Any]
    ) -> None:
        hold(open_transaction, "held")
        answers = await engine.jobs.submit([keyed(key) for key in (None, "held", "free")])
        assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False, True, False]

    async def test_a_batch_under_a_held_key_is_put_off(
        self, engine: Engine, open_transaction: psycopg.Connection[Any]
    ) -> None:
        hold(open_transaction, "held")
        asked = {number: request() for number in range(3)}
        with pytest.raises(StoreUnavailable, match="held"):
            await engine.jobs.submit_batch(asked, BatchKey("held", b"fingerprint"))
        open_transaction.rollback()
        answers = await engine.jobs.submit_batch(asked, BatchKey("held", b"fingerprint"))
        assert [isinstance(answer, Inserted) for answer in answers.values()] == [True] * 3


def keyed(key: str | None) -> SubmitRequest:
    return request() if key is None else request(idempotency_key=key)


async def one(engine: Engine, key: str | None) -> Job:
    return await submit(engine) if key is None else await submit(engine, idempotency_key=key)
