"""From zero workers to several and back on ECS, with jobs that outlast the alarm of an empty queue.

Tasks are containers that ministack starts on Podman. It has no Application Auto Scaling and ignores task protection:
`AlarmedService` stands in for both.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.aws import AwsService
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.model.lifecycle import State
from penstock.testing.fleet_contract import eventually
from servers import Ministack, Podman, Valkey, aws_environ
from tests import postgres
from tests.ecs import FAMILY, FAST_BEATS, ecs_client, ecs_with_containers, metadata_of, worker_definition
from tests.ecs_agent import StandInAgent
from tests.servers_fixtures import real_servers
from tests.system.harness import APP, Process, Server, ending, ledger

pytestmark = pytest.mark.slow

JOBS = MOST = 3
ALARM_EVERY = seconds(0.5)
EMPTY_LOOKS = 14
"""For how many looks the alarm insists: 7 s. ministack kills a task 5 s after it has asked it to stop."""

TOLD_WITHIN = seconds(1.0)
"""How long ministack takes to tell tasks that they are to stop."""

WITHIN = 100.0
SERVICE = "jobs"


@pytest.fixture(scope="module")
def ecs() -> Iterator[tuple[Ministack, Podman]]:
    with ecs_with_containers() as both:
        yield both


@pytest.fixture
def environ(ecs: tuple[Ministack, Podman], tmp_path: Path) -> Iterator[dict[str, str]]:
    url = postgres.server(18).database(f"ecs_{tmp_path.name.replace('-', '_')}")
    with real_servers() as folder, Valkey(folder / "valkey") as valkey:
        yield {
            "PENSTOCK_STORE_URL": url,
            "PENSTOCK_BROKER_URL": valkey.url,
            "PENSTOCK_SERVER_DATA": str(tmp_path / "data"),
            "PENSTOCK_FLEET_BACKEND": "ecs",
            "PENSTOCK_FLEET_MAX": str(MOST),
            "PENSTOCK_FLEET_CAPACITY": "1",
            "PENSTOCK_ECS_TASK_DEFINITION": FAMILY,
            **aws_environ(ecs[0].endpoint),
            **FAST_BEATS,
        }


@pytest.fixture
def server(environ: dict[str, str], tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "data", "--no-workers", "--allow-unknown-types", app=None, environ=environ)
    with ending(server):
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as client:
        yield client


@pytest.fixture
async def service(ecs: tuple[Ministack, Podman], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AwsService]:
    async with ecs_client(monkeypatch, ecs[0]) as service:
        yield service
        for arn in (await service.call("ListTasks"))["taskArns"]:
            await service.call("StopTask", task=arn)


def definition(server: Server, folder: Path, **environ: str) -> dict[str, Any]:
    told = {
        "PENSTOCK_WORKER_URL": server.url,
        "PENSTOCK_WORKER_CAPACITY": "1",
        "HANDLERS_FOLDER": str(folder),
        **environ,
    }
    return worker_definition(APP, folder, told)


async def start_jobs(client: AsyncClient, folder: Path) -> Sequence[str]:
    """Jobs that run until they are let go, each on a worker of its own."""
    jobs = [(await client.submit("hold")).id for _ in range(JOBS)]

    async def all_run() -> bool:
        return starts(folder) == JOBS

    await eventually("all run", all_run)
    return jobs


async def finish_jobs(client: AsyncClient, folder: Path, jobs: Sequence[str]) -> None:
    """Let the jobs end: each has run once, and by another worker than the others."""
    (folder / "go").touch()
    ended = [await client.wait(job, timeout=WITHIN) for job in jobs]
    assert [(job.state, job.attempt, job.fence) for job in ended] == [("succeeded", 1, 1)] * JOBS
    assert len({job.worker for job in ended}) == starts(folder) == JOBS


def starts(folder: Path) -> int:
    return sum(line["what"] == "start" for line in ledger(folder))


async def count_tasks(service: AwsService) -> int:
    return len((await service.call("ListTasks"))["taskArns"])


async def stop_reasons(service: AwsService) -> set[str]:
    arns = (await service.call("ListTasks", desiredStatus="STOPPED"))["taskArns"]
    return {task["stopCode"] for task in (await service.call("DescribeTasks", tasks=arns))["tasks"]}


async def test_the_autoscaler_starts_tasks_and_drains_idle_ones_by_name(
    environ: dict[str, str], server: Server, client: AsyncClient, service: AwsService, tmp_path: Path
) -> None:
    await service.call("RegisterTaskDefinition", **definition(server, tmp_path))
    autoscaler = Process("autoscaler", APP, folder=tmp_path, environ=environ)
    with ending(autoscaler):
        autoscaler.says("autoscaler ready")
        await client.update_fleet("default", in_after="500ms")
        jobs = await start_jobs(client, tmp_path)
        await finish_jobs(client, tmp_path, jobs)

        async def all_gone() -> bool:
            return await count_tasks(service) == 0

        await eventually("no task is left", all_gone)
        fleet = await client.get_fleet("default")
    assert (fleet.desired, fleet.started) == (0, fleet.stopped)
    # Each ended by itself: none was stopped.
    assert await stop_reasons(service) == {"EssentialContainerExited"}


class AlarmedService:
    """A service of ECS whose alarms look at the jobs that wait, and see no job that runs.

    Stands in for Application Auto Scaling (a task more for each look with waiting jobs, none wanted without) and for
    what ECS does with protected tasks, which ministack does not know: it stops the oldest of a service, so the service
    is made smaller only by those before the first protected one.
    """

    def __init__(self, client: AsyncClient, service: AwsService, agent: StandInAgent, endpoint: str) -> None:
        self._client = client
        self._service = service
        self._agent = agent
        self._endpoint = endpoint
        self.largest = 0
        self.empty_while_running = 0

    async def insist(self) -> bool:
        """Whether the alarm of an empty queue was there for long while jobs ran."""
        return self.empty_while_running >= EMPTY_LOOKS

    @asynccontextmanager
    async def scale(self) -> AsyncIterator["AlarmedService"]:
        looking = asyncio.ensure_future(self._look_for_ever())
        try:
            yield self
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look_for_ever(self) -> None:
        clock = SystemClock()
        while True:
            await self._look()
            await clock.sleep(ALARM_EVERY)

    async def _look(self) -> None:
        jobs = [queue.jobs for queue in await self._client.queues() if queue.name == "hold"]
        waiting = sum(one.get(State.QUEUED, 0) for one in jobs)
        tasks = await self._tasks()
        if waiting:
            await self._resize(min(MOST, len(tasks) + 1))
        elif tasks:
            self.empty_while_running += any(one.get(State.RUNNING, 0) for one in jobs)
            await self._shrink(tasks)

    async def _shrink(self, tasks: list[str]) -> None:
        # No task becomes protected between the choice and the stop: ECS refuses it for one that it has chosen.
        self._agent.held.clear()
        try:
            protected = {await metadata_of(self._endpoint, token) for token in self._agent.protected()}
            safe = next((place for place, arn in enumerate(tasks) if arn in protected), len(tasks))
            if safe:
                await self._resize(len(tasks) - safe)
                await SystemClock().sleep(TOLD_WITHIN)
        finally:
            self._agent.held.set()

    async def _resize(self, count: int) -> None:
        self.largest = max(self.largest, count)
        await self._service.call("UpdateService", service=SERVICE, desiredCount=count)

    async def _tasks(self) -> list[str]:
        return list((await self._service.call("ListTasks", serviceName=SERVICE))["taskArns"])


# Every task of a service has the same definition: each makes the address of its agent from that of its metadata.
OWN_AGENT = 'export ECS_AGENT_URI="$AGENT/api/${ECS_CONTAINER_METADATA_URI_V4##*/}"; exec penstock worker '


async def test_alarms_scale_a_service_and_busy_tasks_are_protected(
    ecs: tuple[Ministack, Podman],
    environ: dict[str, str],
    server: Server,
    client: AsyncClient,
    service: AwsService,
    tmp_path: Path,
) -> None:
    async with StandInAgent().serve() as agent:
        made = definition(server, tmp_path, AGENT=agent.url, PENSTOCK_WORKER_TASK_PROTECTION="true")
        made["containerDefinitions"][0]["command"] = ["/bin/sh", "-c", OWN_AGENT + APP]
        await service.call("RegisterTaskDefinition", **made)
        await service.call("CreateService", serviceName=SERVICE, taskDefinition=FAMILY, desiredCount=0)
        watching = {**environ, "PENSTOCK_ECS_MODE": "alarms", "PENSTOCK_ECS_SERVICE": SERVICE}
        autoscaler = Process("autoscaler", APP, folder=tmp_path, environ=watching)
        alarms = AlarmedService(client, service, agent, ecs[0].endpoint)
        with ending(autoscaler):
            autoscaler.says("autoscaler ready")
            async with alarms.scale():
                jobs = await start_jobs(client, tmp_path)
                await eventually("the queue seems empty for longer than ECS waits", alarms.insist)
                await finish_jobs(client, tmp_path, jobs)

                async def all_gone() -> bool:
                    return await count_tasks(service) == 0

                await eventually("no task is left", all_gone)
            fleet = await client.get_fleet("default")
        assert alarms.largest == MOST
        assert (fleet.started, fleet.stopped, "only watched" in (fleet.reason or "")) == (0, 0, True)
        assert {put["ProtectionEnabled"] for _, put in agent.puts} == {True, False}
        assert len(agent.puts) < 3 * JOBS
