"""Fleets of containers keep the contract, with real workers on Podman; and the whole way out and back in."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.autoscaler.backends.containers import ContainerFleets
from penstock.client import AsyncClient
from penstock.testing.fleet_contract import FleetContract, Yard
from servers import Podman
from servers.podman import CHECKOUT
from tests import containers
from tests.containers import WITHIN, Place, ends, statuses
from tests.system.harness import Server

pytestmark = pytest.mark.slow

podman = containers.podman

APP = "tests.contracts.fleet_app:app"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("containers")


@pytest.fixture(scope="module")
def url(podman: Podman, folder: Path) -> Iterator[str]:
    server = Server(folder / "data", app=None)
    yield server.url
    server.end()


@pytest.fixture
async def place(podman: Podman, folder: Path) -> AsyncIterator[Place]:
    place = Place(podman.url, folder)
    yield place
    await place.close()


class Shared(Yard):
    """Jobs are let go by a file in a folder that containers and test share. Started with the default command."""

    def __init__(self, client: AsyncClient, url: str, place: Place) -> None:
        super().__init__()
        self.client = client
        self._place = place
        self._environment = {
            "PENSTOCK_WORKER_URL": url,
            "PENSTOCK_WORKER_EXECUTORS": "1",
            "PENSTOCK_WORKER_GRACE_SECONDS": "0.5",
            "FLEET_APP_FOLDER": str(place.folder),
            "PYTHONPATH": str(CHECKOUT),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }

    def order(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app=APP, queues=(fleet,), capacity=1, environment=self._environment)

    def unusable(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app="tests.contracts.no_such_app:app", environment=self._environment)

    def let_go(self, job: str) -> None:
        (self._place.folder / job).touch()

    async def kill(self, member: FleetMember) -> None:
        await self._place.engine.signal(member.detail.split()[1], "SIGKILL")


class TestContainers(FleetContract):
    @pytest.fixture
    async def yard(self, url: str, place: Place) -> AsyncIterator[Shared]:
        async with AsyncClient(url) as client:
            yield Shared(client, url, place)

    @pytest.fixture
    def fleets(self, place: Place) -> ContainerFleets:
        return place.fleets()

    async def test_why_an_app_cannot_be_imported_is_told(self, fleets: ContainerFleets, yard: Shared) -> None:
        [name] = await fleets.start(yard.unusable(yard.fleet), 1)
        assert "tests.contracts.no_such_app" in (await self.wait_for_end(fleets, yard.fleet, name)).detail

    async def test_three_come_and_go_over_a_restart_of_the_autoscaler_and_no_job_is_interrupted(
        self, place: Place, yard: Shared
    ) -> None:
        before = place.fleets()
        names = await self.start_joined(before, yard, 3)
        jobs = [await yard.submit_running() for _ in range(3)]
        await before.stop(yard.fleet, names[:1])
        await before.close()
        after = place.fleets()
        known = {member.name: member.condition for member in await after.members(yard.fleet)}
        assert known == {names[0]: Condition.ENDING, names[1]: Condition.RUNNING, names[2]: Condition.RUNNING}
        await after.stop(yard.fleet, names)
        for job in jobs:
            yard.let_go(job)
        assert statuses(await ends(after, *names, fleet=yard.fleet)) == [0, 0, 0]
        items = [await yard.client.wait(job, timeout=WITHIN) for job in jobs]
        assert [(item.state, item.attempt) for item in items] == [("succeeded", 1)] * 3
        assert {item.worker for item in items} == set(names)
        assert await place.containers() == []
