"""Fleets of local processes keep the contract, forked from a template and without one."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from penstock.autoscaler.backends import LaunchSpec
from penstock.autoscaler.backends.processes import ProcessFleets, own_environment
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import FleetUnavailable
from penstock.model.lifecycle import State
from penstock.testing.fleet_contract import FleetContract, eventually
from penstock.worker.prefork.launcher import Launcher
from tests.contracts.fleet_folder import APP, Folder
from tests.system.harness import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    server = Server(folder / "data", app=None)
    yield server.url
    server.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forking() -> AsyncIterator[Launcher]:
    launcher = Launcher()
    yield launcher
    await launcher.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spawning() -> AsyncIterator[Launcher]:
    launcher = Launcher(prefork=False)
    yield launcher
    await launcher.close()


@pytest.mark.asyncio(loop_scope="module")
class ProcessFleetContract(FleetContract):
    """What both ways to start a process share. The launcher, and so the template, is one for all tests."""

    @pytest.fixture
    def yard(self, client: AsyncClient, url: str, folder: Path) -> Folder:
        return Folder(client, url, folder)

    @pytest_asyncio.fixture(loop_scope="module")
    async def fleets(  # type: ignore[override] # a fixture over a fixture
        self, launcher: Launcher
    ) -> AsyncIterator[ProcessFleets]:
        fleets = ProcessFleets(launcher.launch, SystemClock(), random.Random(), patience=seconds(0))
        yield fleets
        await fleets.close()


class TestForkedProcesses(ProcessFleetContract):
    @pytest.fixture
    def launcher(self, forking: Launcher) -> Launcher:
        return forking

    async def test_why_an_app_cannot_be_imported_is_told(self, fleets: ProcessFleets, yard: Folder) -> None:
        [name] = await fleets.start(yard.unusable(yard.fleet), 1)
        end = await self.wait_for_end(fleets, yard.fleet, name)
        assert "no_such_app cannot be imported" in end.detail.replace(":app", "")
        assert "ModuleNotFoundError" in end.detail

    async def test_closing_drains_every_member_and_starts_no_more(self, launcher: Launcher, yard: Folder) -> None:
        fleets = ProcessFleets(launcher.launch, SystemClock(), random.Random(), patience=seconds(600))
        [name] = await self.start_joined(fleets, yard)
        job = await yard.submit_running()
        closing = asyncio.ensure_future(fleets.close())
        await eventually("it drains", partial(yard.is_draining, name))
        with pytest.raises(FleetUnavailable, match="stopping"):
            await fleets.start(yard.order(yard.fleet), 1)
        yard.let_go(job)
        await closing
        assert (await yard.client.get(job)).state == State.SUCCEEDED
        assert [one.exit_status for one in await fleets.members(yard.fleet)] == [0]

    async def test_standing_by_it_lets_its_members_finish_and_go(
        self, launcher: Launcher, fleets: ProcessFleets, yard: Folder
    ) -> None:
        other = ProcessFleets(launcher.launch, SystemClock(), random.Random(), patience=seconds(0))
        [name] = await self.start_joined(fleets, yard)
        assert await other.members(yard.fleet) == []
        assert other.elsewhere(yard.fleet, [name, "nobody", f"{yard.fleet}-other"]) == [name]
        assert fleets.elsewhere(yard.fleet, [name]) == []
        job = await yard.submit_running()
        await fleets.stand_by()
        await eventually("it drains", partial(yard.is_draining, name))
        yard.let_go(job)
        assert (await self.wait_for_end(fleets, yard.fleet, name)).exit_status == 0
        assert (await yard.client.get(job)).state == State.SUCCEEDED

    async def test_a_worker_that_cannot_reach_its_server_ends_when_it_is_stopped(
        self, fleets: ProcessFleets, yard: Folder
    ) -> None:
        yard.environment = {**yard.environment, "PENSTOCK_WORKER_URL": "http://127.0.0.1:1"}
        [name] = await fleets.start(yard.order(yard.fleet), 1)

        async def has_executors() -> bool:
            [member] = await fleets.members(yard.fleet)
            pid = member.detail.removeprefix("pid ")
            return bool(pid) and len(psutil.Process(int(pid)).children()) > 1

        await eventually("it has executors", has_executors)
        await fleets.stop(yard.fleet, [name])
        assert (await self.wait_for_end(fleets, yard.fleet, name)).exit_status == 0

    async def test_hurried_it_gives_running_jobs_back_while_it_closes(self, launcher: Launcher, yard: Folder) -> None:
        fleets = ProcessFleets(launcher.launch, SystemClock(), random.Random(), patience=seconds(600))
        await self.start_joined(fleets, yard)
        job = await yard.submit_running()
        closing = asyncio.ensure_future(fleets.close())
        fleets.hurry()
        await closing
        assert (await yard.client.get(job)).state == State.QUEUED
        await yard.client.cancel(job)


@pytest.mark.slow
class TestSpawnedProcesses(ProcessFleetContract):
    @pytest.fixture
    def launcher(self, spawning: Launcher) -> Launcher:
        return spawning


def test_a_member_is_told_its_name_queues_and_share_of_the_limits() -> None:
    order = LaunchSpec(fleet="mail", app=APP, queues=("mail", "post"), capacity=8, cpus=1.5, memory_mib=600)
    assert own_environment(order, "mail-1") == {
        "PENSTOCK_MEMBER": "mail-1",
        "PENSTOCK_WORKER_DRAIN_SECONDS": "31536000",
        "PENSTOCK_WORKER_QUEUES": "mail\npost\n",
        "PENSTOCK_WORKER_CAPACITY": "8",
        "PENSTOCK_WORKER_EXECUTORS": "2",
        "PENSTOCK_WORKER_MEMORY_MIB": "200",
    }


def test_what_an_order_leaves_open_is_left_to_the_settings() -> None:
    assert own_environment(LaunchSpec(fleet="mail", app=APP), "mail-1") == {
        "PENSTOCK_MEMBER": "mail-1",
        "PENSTOCK_WORKER_DRAIN_SECONDS": "31536000",
    }
