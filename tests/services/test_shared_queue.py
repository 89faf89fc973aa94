"""Types that share a queue: none keeps another from its workers, and priority holds among those that a worker runs."""

import pytest

from penstock.config import Settings, TimingSettings
from penstock.engine import Engine
from penstock.model.errors import PenstockError
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey
from penstock.model.workers import JobType
from tests.services.engine_steps import claim, dispatcher, request, worker

ADD = JobType(name="add", queue="shared")
OTHER = JobType(name="other", queue="shared")


@pytest.fixture
def settings() -> Settings:
    return Settings(timing=TimingSettings(window_jobs=3))


@pytest.fixture(autouse=True)
async def declared(engine: Engine) -> None:
    await engine.worker_api.join(worker(), [ADD, OTHER])


async def submit_many(engine: Engine, type_name: str, jobs: int, **more: object) -> list[JobId]:
    answers = await engine.jobs.submit([request(type_name, {}, **more) for _ in range(jobs)])
    return [answer.id for answer in answers if not isinstance(answer, PenstockError)]


async def test_jobs_of_a_type_that_no_worker_runs_leave_the_others_their_window(engine: Engine) -> None:
    await submit_many(engine, "other", 10, priority=9)
    await dispatcher(engine).step()
    (job,) = await submit_many(engine, "add", 1)
    assert [one.job for one in await claim(engine, "w1", "add")] == [job]


async def test_jobs_of_a_type_that_no_worker_runs_hide_no_backlog(engine: Engine) -> None:
    await submit_many(engine, "other", 30, priority=9)
    jobs = await submit_many(engine, "add", 10)
    await dispatcher(engine).step()
    taken = [one.job for _ in range(4) for one in await claim(engine, "w1", "add", limit=4)]
    assert sorted(taken) == sorted(jobs)


async def test_without_a_dispatcher_a_backlog_is_found_behind_jobs_of_another_type(engine: Engine) -> None:
    await submit_many(engine, "other", 30, priority=9)
    jobs = await submit_many(engine, "add", 10)
    assert [one.job for one in await claim(engine, "w1", "add")] == jobs


async def test_priority_holds_among_the_types_of_a_backlog(engine: Engine) -> None:
    plain = await submit_many(engine, "add", 4, priority=5)
    low = await submit_many(engine, "other", 4, priority=1)
    urgent = await submit_many(engine, "other", 4, priority=9)
    taken = [[one.job for one in await claim(engine, limit=4)] for _ in range(3)]
    assert taken == [urgent, plain, low]


async def test_a_ticket_of_one_type_does_not_overtake_the_more_urgent_backlog_of_another(engine: Engine) -> None:
    urgent = await submit_many(engine, "other", 9, priority=9)
    taken = [one.job for one in await claim(engine, limit=3)]
    (low,) = await submit_many(engine, "add", 1, priority=1)
    taken += [one.job for _ in range(3) for one in await claim(engine, limit=3)]
    assert taken == [*urgent, low]


async def test_a_worker_that_does_not_run_the_more_urgent_type_takes_its_ticket_at_once(engine: Engine) -> None:
    await submit_many(engine, "other", 9, priority=9)
    await claim(engine, "w1", "other", limit=3)
    (low,) = await submit_many(engine, "add", 1, priority=1)
    assert [one.job for one in await claim(engine, "w2", "add")] == [low]


async def test_the_end_of_one_backlog_is_not_the_end_of_another(engine: Engine) -> None:
    """Two workers of one process, each with its own type: what one does not find the other still looks for."""
    jobs = await submit_many(engine, "other", 4)
    assert await claim(engine, "w1", "add") == []
    assert [one.job for one in await claim(engine, "w2", "other")] == jobs


async def test_a_ticket_goes_out_beside_the_backlog_of_another_type(engine: Engine) -> None:
    await submit_many(engine, "other", 10)
    await dispatcher(engine).step()
    await submit_many(engine, "add", 1)
    assert await engine.broker.depths() == {BacklogKey("shared", "other"): 3, BacklogKey("shared", "add"): 1}
