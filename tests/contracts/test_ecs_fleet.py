"""Fleets of ECS tasks keep the contract, with real workers in containers that ministack starts on Podman."""

import random
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.autoscaler.backends.containers.engine import ContainerEngine
from penstock.autoscaler.backends.ecs import EcsFleets, TaskPlan
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.testing.fleet_contract import FleetContract, Yard
from servers import Ministack, Podman
from tests.ecs import FAMILY, FAST_BEATS, RemoteRegistry, ecs_client, ecs_with_containers, worker_definition
from tests.system.harness import Server

pytestmark = pytest.mark.slow

APP = "tests.contracts.fleet_app:app"
LOOK_EVERY = seconds(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def ecs() -> Iterator[tuple[Ministack, Podman]]:
    with ecs_with_containers() as both:
        yield both


@pytest.fixture(scope="module")
def url(ecs: object, folder: Path) -> Iterator[str]:
    server = Server(folder / "data", app=None, environ=FAST_BEATS)
    yield server.url
    server.end()


class Cluster(Yard):
    """Jobs are let go by a file in a folder that containers and test share."""

    def __init__(self, client: AsyncClient, folder: Path, engine: ContainerEngine) -> None:
        super().__init__()
        self.client = client
        self._folder = folder
        self._engine = engine

    def order(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app=APP, queues=(fleet,), capacity=1, environment={"TEAM": "tests"})

    def unusable(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app=APP, command=("penstock", "worker", "tests.contracts.no_such_app:app"))

    def let_go(self, job: str) -> None:
        (self._folder / job).touch()

    async def kill(self, member: FleetMember) -> None:
        label = "com.amazonaws.ecs.task-arn"
        there = [one for one in await self._engine.containers({}) if one.labels.get(label, "").endswith(member.name)]
        (container,) = there
        await self._engine.signal(container.id, "SIGKILL")


class TestEcs(FleetContract):
    @pytest.fixture
    async def yard(self, ecs: tuple[Ministack, Podman], url: str, folder: Path) -> AsyncIterator[Cluster]:
        engine = ContainerEngine(ecs[1].url)
        async with AsyncClient(url) as client:
            yield Cluster(client, folder, engine)
        await engine.close()

    @pytest.fixture
    def system(self) -> str:
        return f"test-{secrets.token_hex(4)}"

    @pytest.fixture
    async def fleets(
        self, ecs: tuple[Ministack, Podman], system: str, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[EcsFleets]:
        async with ecs_client(monkeypatch, ecs[0]) as service, AsyncClient(url) as client:
            await service.call("RegisterTaskDefinition", **worker_definition(APP, folder, {"PENSTOCK_WORKER_URL": url}))
            fleets = self.backend(client, system)
            yield fleets
            await fleets.close()
            for arn in (await service.call("ListTasks", startedBy=system))["taskArns"]:
                await service.call("StopTask", task=arn)

    def backend(self, client: AsyncClient, system: str) -> EcsFleets:
        """A backend, as a new autoscaler has it."""
        return EcsFleets(
            RemoteRegistry(client),
            SystemClock(),
            random.Random(),
            system=system,
            plan=TaskPlan(task_definition=FAMILY),
            look_every=LOOK_EVERY,
        )

    async def test_a_later_autoscaler_adopts_what_runs(self, fleets: EcsFleets, yard: Cluster, system: str) -> None:
        [name] = await self.start_joined(fleets, yard)
        after = self.backend(yard.client, system)
        try:
            [member] = await after.members(yard.fleet)
            assert (member.name, member.condition) == (name, Condition.RUNNING)
            await after.stop(yard.fleet, [name])
            assert (await self.wait_for_end(after, yard.fleet, name)).exit_status == 0
        finally:
            await after.close()
