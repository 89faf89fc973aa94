"""A batch under one key: however often and wherever it was interrupted, repeating it adds what is missing, once."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.config.settings import RetentionSettings
from penstock.engine import Engine
from penstock.engine.batches import BatchKey, SubmitOutcome
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import KeyConflict, NotFound, PenstockError, StoreUnavailable, UnknownType
from penstock.model.ids import JobId, place_in_series, shard_of
from penstock.model.job import NewJob, Retention
from penstock.model.submission import Submission
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.workers import JobType
from penstock.objects.folder import FolderObjects
from penstock.store.seam import Store
from penstock.store.sqlite import SqliteStore
from tests.postgres import new_store
from tests.services.engine_steps import body, claim, join, request, submit, success
from tests.services.faulty_shards import FaultyShards

KEY = BatchKey("k", b"asked")
PRUNED_AT_ONCE = Retention(succeeded=timedelta(0))


@pytest.fixture(params=["sqlite", "postgres 16", "postgres 18", "three shards"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    async with AsyncExitStack() as stack:
        store: Store
        clock: Clock = SystemClock()
        if request.param == "sqlite":
            store = await SqliteStore.open(tmp_path / "penstock.db")
            stack.push_async_callback(store.close)
        elif request.param == "three shards":
            case = await stack.enter_async_context(FaultyShards(tmp_path))
            store, clock = await case.orchestrator(), case.clock
        else:
            store = await stack.enter_async_context(new_store(int(request.param.split()[1]), None))
        objects = FolderObjects(tmp_path / "objects", clock)
        engine = Engine(store, MemoryBroker(), objects, Settings(), clock, random.Random(7))
        await join(engine)
        yield engine
        await engine.tickets.close()


def jobs(count: int) -> dict[int, SubmitRequest]:
    return {index: request(params={"a": index}) for index in range(count)}


def ids(outcomes: Mapping[int, SubmitOutcome]) -> list[JobId]:
    return [made(outcome).id for _, outcome in sorted(outcomes.items())]


def made(outcome: SubmitOutcome) -> Submission:
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def created(outcomes: Mapping[int, SubmitOutcome]) -> list[bool]:
    return [made(outcome).created for _, outcome in sorted(outcomes.items())]


async def total(engine: Engine) -> int:
    return sum(count.jobs for count in await engine.store.counts())


class Interrupted:
    """A store that is out of reach from its second submit on, or after each that it carries out."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, *, carries_out: int) -> None:
        self._submit = engine.store.submit
        self._left = carries_out
        monkeypatch.setattr(engine.store, "submit", self)

    async def __call__(self, news: Sequence[NewJob], ticket_for: timedelta) -> Any:
        if self._left == 0:
            raise StoreUnavailable("gone")
        self._left -= 1
        return await self._submit(news, ticket_for)


async def test_the_jobs_have_consecutive_ids_where_their_key_belongs(engine: Engine) -> None:
    made = ids(await engine.jobs.submit_batch(jobs(20), KEY))
    assert [place_in_series(job) for job in made] == list(range(20))
    assert made == sorted(made)
    assert {shard_of(job) for job in made} == {engine.store.shard_for("k")}
    assert [(await engine.jobs.get(job)).params for job in made[:2]] == [b'{"a":0}', b'{"a":1}']


async def test_repeated_it_adds_nothing(engine: Engine) -> None:
    first = await engine.jobs.submit_batch(jobs(20), KEY)
    again = await engine.jobs.submit_batch(jobs(20), KEY)
    assert created(first) == [True] * 20
    assert created(again) == [False] * 20
    assert ids(first) == ids(again)
    assert await total(engine) == 20


async def test_repeated_at_the_same_time_it_is_added_once(engine: Engine) -> None:
    calls = await asyncio.gather(*(engine.jobs.submit_batch(jobs(20), KEY) for _ in range(5)))
    assert len({tuple(ids(call)) for call in calls}) == 1
    assert [sum(one) for one in zip(*map(created, calls), strict=True)] == [1] * 20
    assert await total(engine) == 20


async def test_repeated_after_its_first_job_alone_it_adds_the_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        Interrupted(engine, patched, carries_out=1)
        with pytest.raises(StoreUnavailable):
            await engine.jobs.submit_batch(jobs(20), KEY)
    assert await total(engine) == 1
    again = await engine.jobs.submit_batch(jobs(20), KEY)
    assert created(again) == [False] + [True] * 19
    assert [place_in_series(job) for job in ids(again)] == list(range(20))
    assert await total(engine) == 20


async def test_repeated_before_anything_was_written_it_is_added(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        Interrupted(engine, patched, carries_out=0)
        with pytest.raises(StoreUnavailable):
            await engine.jobs.submit_batch(jobs(20), KEY)
    assert created(await engine.jobs.submit_batch(jobs(20), KEY)) == [True] * 20


async def test_jobs_that_have_ended_meanwhile_are_not_added_again(engine: Engine) -> None:
    first = await engine.jobs.submit_batch(jobs(3), KEY)
    await engine.worker_api.settle([success(claimed) for claimed in await claim(engine)])
    again = await engine.jobs.submit_batch(jobs(3), KEY)
    assert ids(first) == ids(again)
    assert {made(one).state for one in again.values()} == {"succeeded"}


async def test_repeated_after_some_were_pruned_it_runs_none_of_them_again(engine: Engine) -> None:
    first = await engine.jobs.submit_batch(jobs(3), KEY)
    await engine.worker_api.settle([success(claimed) for claimed in await claim(engine)])
    assert sum([(await part.prune(PRUNED_AT_ONCE, 99)).jobs for part in engine.store.shards()]) == 2
    settings = Settings(retention=RetentionSettings(succeeded_seconds=0))
    api = Engine(engine.store, MemoryBroker(), engine.objects, settings, engine.clock, random.Random(8))
    again = await api.jobs.submit_batch(jobs(3), KEY)
    assert (made(again[0]).id, made(again[0]).created) == (made(first[0]).id, False)
    assert [type(again[index]) for index in (1, 2)] == [NotFound, NotFound]
    assert await total(engine) == 1


async def test_the_same_key_for_other_jobs_is_a_conflict_of_all_without_a_key_of_their_own(engine: Engine) -> None:
    await engine.jobs.submit_batch(jobs(3), KEY)
    other = {**jobs(3), 1: request(idempotency_key="own")}
    outcomes = await engine.jobs.submit_batch(other, BatchKey("k", b"else"))
    assert [type(outcomes[index]).__name__ for index in range(3)] == ["KeyConflict", "Inserted", "KeyConflict"]
    assert await total(engine) == 4


async def test_a_key_that_one_job_has_is_no_key_for_a_batch(engine: Engine) -> None:
    await submit(engine, idempotency_key="k")
    outcomes = await engine.jobs.submit_batch(jobs(2), KEY)
    assert [type(outcome) for outcome in outcomes.values()] == [KeyConflict, KeyConflict]


async def test_jobs_with_keys_of_their_own_are_found_by_these(engine: Engine) -> None:
    asked = {**jobs(4), 0: request(idempotency_key="zero"), 2: request(idempotency_key="two")}
    first = await engine.jobs.submit_batch(asked, KEY)
    under_another = await engine.jobs.submit_batch(asked, BatchKey("l", b"asked"))
    assert created(under_another) == [False, True, False, True]
    assert ids(await engine.jobs.submit_batch(asked, KEY)) == ids(first)


async def test_a_refused_job_carries_no_key_and_is_added_once_it_is_acceptable(engine: Engine) -> None:
    asked = {0: request("unknown"), 2: request(params={}), 3: request(), 5: request()}
    first = await engine.jobs.submit_batch(asked, KEY)
    assert [type(outcome).__name__ for outcome in first.values()] == [
        "UnknownType", "InvalidParams", "Inserted", "Inserted",
    ]  # fmt: skip
    await engine.catalog.declare([JobType(name="unknown", queue="other")])
    again = await engine.jobs.submit_batch(asked, KEY)
    assert [made(again[index]).created for index in (0, 3, 5)] == [True, False, False]
    assert [place_in_series(made(again[index]).id) for index in (0, 3, 5)] == [0, 3, 5]
    assert await total(engine) == 3


async def test_where_all_are_refused_nothing_is_kept(engine: Engine) -> None:
    outcomes = await engine.jobs.submit_batch({0: request("unknown"), 1: request("unknown")}, KEY)
    assert [type(outcome) for outcome in outcomes.values()] == [UnknownType, UnknownType]
    assert created(await engine.jobs.submit_batch(jobs(2), KEY)) == [True, True]


async def test_inputs_and_large_params_come_with_the_jobs_that_are_added_late(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await engine.files.upload(body(b"so much depends"), "text/plain")
    asked = {0: request(), 1: request("other", inputs={"poem": upload.id}), 2: request("other", {"x": "y" * 100_000})}
    with monkeypatch.context() as patched:
        Interrupted(engine, patched, carries_out=1)
        with pytest.raises(StoreUnavailable):
            await engine.jobs.submit_batch(asked, KEY)
    job, other = ids(await engine.jobs.submit_batch(asked, KEY))[1:]
    _, chunks = await engine.files.open_input(job, "poem")
    assert b"".join([chunk async for chunk in chunks]) == b"so much depends"
    assert len((await engine.jobs.item(await engine.jobs.get(other))).params) > 100_000


async def test_a_job_that_repeats_makes_one_schedule(engine: Engine) -> None:
    asked = {0: request(interval=60), 1: request()}
    first = await engine.jobs.submit_batch(asked, KEY)
    again = await engine.jobs.submit_batch(asked, KEY)
    assert created(first) == [True, True]
    assert ids(first) == ids(again)
