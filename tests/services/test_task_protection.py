"""A worker in a service of ECS: its task is protected before a job starts and while jobs run, and let go when idle."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.model.errors import InvalidSetting
from penstock.testing.clock import SimulatedClock
from penstock.worker.agent import task_protection
from penstock.worker.agent.agent import ECS_AGENT
from penstock.worker.agent.task_protection import EXPIRY, IDLE_FOR, RETRY_AFTER, TaskProtection
from penstock.worker.ecs_task import read_task_id
from tests.ecs import read_request, response
from tests.ecs_agent import StandInAgent
from tests.services.running_worker import run_worker

PROTECT = ("t1", {"ProtectionEnabled": True, "ExpiresInMinutes": 10})
RELEASE = ("t1", {"ProtectionEnabled": False})
SECOND = timedelta(seconds=1)


@pytest.fixture
async def ecs_agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandInAgent]:
    async with StandInAgent().serve() as agent:
        monkeypatch.setenv(ECS_AGENT, agent.uri("t1"))
        yield agent


class Jobs:
    """Whether jobs run."""

    busy = False


class Stepped:
    """A protection on a clock that is set by hand."""

    def __init__(self, uri: str) -> None:
        self.clock, self.jobs = SteppedClock(), Jobs()
        self.protection = TaskProtection(uri, lambda: self.jobs.busy, self.clock)

    async def step(self, after: timedelta = timedelta(0)) -> None:
        self.clock.advance(after)
        await self.protection.step()


class SteppedClock(SimulatedClock):
    """Does not wait between steps."""

    async def sleep(self, span: timedelta) -> None:
        """Nothing: the next step is the test's."""


@pytest.fixture
async def stepped(ecs_agent: StandInAgent) -> AsyncIterator[Stepped]:
    stepped = Stepped(ecs_agent.uri("t1"))
    yield stepped
    await stepped.protection.close()


async def test_a_task_is_protected_once_for_many_jobs_and_released_when_it_is_idle_for_a_while(
    ecs_agent: StandInAgent, stepped: Stepped
) -> None:
    await stepped.step()
    assert ecs_agent.puts == []
    await stepped.protection.before_jobs()
    stepped.jobs.busy = True
    await stepped.step(SECOND)
    await stepped.protection.before_jobs()
    assert ecs_agent.puts == [PROTECT]
    stepped.jobs.busy = False
    await stepped.step(IDLE_FOR - SECOND)
    await stepped.protection.before_jobs()
    await stepped.step(IDLE_FOR - SECOND)
    assert ecs_agent.puts == [PROTECT]
    await stepped.step(SECOND)
    assert ecs_agent.puts == [PROTECT, RELEASE]
    await stepped.step(EXPIRY)
    await stepped.protection.before_jobs()
    assert ecs_agent.puts == [PROTECT, RELEASE, PROTECT]


async def test_the_expiry_is_put_off_while_jobs_run(ecs_agent: StandInAgent, stepped: Stepped) -> None:
    await stepped.protection.before_jobs()
    stepped.jobs.busy = True
    await stepped.step(EXPIRY / 2 - SECOND)
    assert ecs_agent.puts == [PROTECT]
    for _ in range(3):
        await stepped.step(SECOND)
        await stepped.step(EXPIRY / 2 - SECOND)
    assert ecs_agent.puts == [PROTECT] * 4


async def test_a_refusal_is_counted_and_tried_again_but_not_for_each_job(
    ecs_agent: StandInAgent, stepped: Stepped, caplog: pytest.LogCaptureFixture
) -> None:
    ecs_agent.refuse = "TASK_NOT_VALID"
    stepped.jobs.busy = True
    for _ in range(3):
        await stepped.protection.before_jobs()
    assert (stepped.protection.failures, ecs_agent.puts) == (1, [PROTECT])
    assert "TASK_NOT_VALID" in caplog.text
    ecs_agent.refuse, ecs_agent.status = "", 500
    await stepped.step(RETRY_AFTER)
    assert (stepped.protection.failures, len(ecs_agent.puts)) == (2, 2)
    ecs_agent.status = 200
    await stepped.step(RETRY_AFTER - SECOND)
    assert len(ecs_agent.puts) == 2
    await stepped.step(SECOND)
    await stepped.step(RETRY_AFTER)
    assert (stepped.protection.failures, len(ecs_agent.puts)) == (2, 3)


async def test_a_worker_runs_no_job_before_its_task_is_protected(ecs_agent: StandInAgent, tmp_path: Path) -> None:
    ecs_agent.held.clear()
    async with run_worker(tmp_path, task_protection=True) as at:
        job = at.worker_api.submit("add", a=1)
        await ecs_agent.until("it asks for protection", lambda: ecs_agent.puts)
        at.agent.beat()
        beats = len(at.worker_api.renewed)
        await at.worker_api.until("it lives", lambda: len(at.worker_api.renewed) > beats + 2)
        assert (job in at.worker_api.outcomes, {*at.worker_api.begun}) == (False, set())
        ecs_agent.held.set()
        assert await at.worker_api.result(job) == 2
        assert ecs_agent.puts == [PROTECT]


async def test_a_job_that_came_too_late_to_be_protected_is_given_back_by_a_drain(
    ecs_agent: StandInAgent, tmp_path: Path
) -> None:
    ecs_agent.held.clear()
    async with run_worker(tmp_path, task_protection=True) as at:
        job = at.worker_api.submit("add", a=1)
        await ecs_agent.until("it asks for protection", lambda: ecs_agent.puts)
        at.agent.drain()
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert at.worker_api.released == {job: False}


async def test_an_idle_worker_lets_its_task_go(
    ecs_agent: StandInAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_protection, "CHECK_INTERVAL", timedelta(milliseconds=20))
    monkeypatch.setattr(TaskProtection.__init__, "__kwdefaults__", {"expiry": EXPIRY, "idle_for": SECOND / 10})
    async with run_worker(tmp_path, task_protection=True) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        assert ecs_agent.protected() == {"t1"}
        at.go()
        assert await at.worker_api.result(job) == "n"
        await ecs_agent.until("it is released", lambda: not ecs_agent.protected())
        assert ecs_agent.puts == [PROTECT, RELEASE]


async def test_jobs_run_without_an_agent_and_where_protection_is_off(
    ecs_agent: StandInAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_worker(tmp_path) as at:
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
    assert ecs_agent.puts == []
    monkeypatch.setenv(ECS_AGENT, "http://127.0.0.1:1/api/t1")
    async with run_worker(tmp_path, task_protection=True) as at:
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2


METADATA = {"TaskARN": "arn:aws:ecs:us-east-1:1:task/cluster/0f3c9a", "Family": "workers"}


@asynccontextmanager
async def metadata(*answers: tuple[int, object]) -> AsyncIterator[str]:
    """The metadata of a task, which give these answers one after another, and the last for ever."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, _, _ = await read_request(reader)
        assert first.startswith("GET /v4/x/task ")
        status, body = left.pop(0) if len(left) > 1 else left[0]
        writer.write(response(status, json.dumps(body).encode()))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v4/x"
    finally:
        server.close()


async def test_a_worker_is_named_by_the_id_of_its_task() -> None:
    async with metadata((500, None), (200, {}), (200, METADATA)) as url:
        assert await read_task_id(url, SteppedClock()) == "0f3c9a"


async def test_a_worker_that_cannot_learn_its_name_does_not_start_under_another() -> None:
    clock = SteppedClock()
    async with metadata((404, None)) as url:
        with pytest.raises(InvalidSetting, match="do not name this task"):
            await read_task_id(url, clock)
