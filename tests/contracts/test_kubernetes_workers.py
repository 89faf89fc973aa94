"""Fleets on Kubernetes keep the contract as far as Kubernetes can, with real workers as the pods of our API server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

if "CI" not in os.environ:
    pytest.importorskip("lightkube")

from penstock.autoscaler.backends import Condition, FleetBackend, FleetMember, LaunchSpec
from penstock.autoscaler.backends.kubernetes import KubernetesFleets
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock
from penstock.testing.fleet_contract import FleetContract, eventually
from tests.contracts.fleet_folder import Folder
from tests.contracts.test_kubernetes_fleet import ROOT, shipped_rules
from tests.kubernetes_server import KubernetesServer
from tests.system.harness import Server

pytestmark = pytest.mark.slow


class WithWorkers(KubernetesServer):
    """Its pods run their command as a process of this machine: SIGTERM when they are to end, gone when it has."""

    def __init__(self) -> None:
        super().__init__(shipped_rules())
        self.exits: dict[str, int] = {}
        self._processes: dict[str, asyncio.Task[int]] = {}
        self._asked_to_end: dict[str, asyncio.Event] = {}

    def become_ready(self, name: str) -> None:
        super().become_ready(name)
        self.busy.add(name)
        self._asked_to_end[name] = asyncio.Event()
        self._processes[name] = asyncio.ensure_future(self._run(name))

    def end(self, name: str, grace: int | None) -> None:
        super().end(name, grace)
        self._asked_to_end[name].set()

    async def _run(self, name: str) -> int:
        (container,) = self.pods[name]["spec"]["containers"]
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **self.environment(name)}
        process = await asyncio.create_subprocess_exec(*container["command"], env=environment, cwd=ROOT)
        try:
            await self._asked_to_end[name].wait()
            process.terminate()
            self.exits[name] = await process.wait()
            self.finish(name)
            return self.exits[name]
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def clear(self) -> None:
        for process in self._processes.values():
            process.cancel()
        await asyncio.gather(*self._processes.values(), return_exceptions=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubernetes")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    server = Server(folder / "data", app=None)
    yield server.url
    server.end()


class Namespace(Folder):
    """As for processes, with an image."""

    def order(self, fleet: str) -> LaunchSpec:
        return msgspec.structs.replace(super().order(fleet), image="penstock")


class TestKubernetes(FleetContract):
    @pytest.fixture
    async def cluster(self) -> AsyncIterator[WithWorkers]:
        server = WithWorkers()
        async with server.running():
            yield server
            await server.clear()

    @pytest.fixture
    async def fleets(self, cluster: WithWorkers) -> AsyncIterator[KubernetesFleets]:
        self.cluster_of_test = cluster
        fleets = KubernetesFleets(SystemClock(), config=cluster.config())
        yield fleets
        await fleets.close()

    @pytest.fixture
    async def yard(self, url: str, folder: Path) -> AsyncIterator[Namespace]:
        async with AsyncClient(url) as client:
            yield Namespace(client, url, folder)

    async def wait_for_end(self, fleets: FleetBackend, fleet: str, name: str) -> FleetMember:
        """A pod that was stopped is gone when it has ended: only the machine below knows how."""

        async def gone() -> bool:
            return name not in {one.name for one in await fleets.members(fleet)}

        await eventually(f"{name} is gone", gone)
        status = self.cluster_of_test.exits[name]
        return FleetMember(
            name=name, condition=Condition.ENDED, started_at=SystemClock().now(), exit_status=status, detail="gone"
        )

    # Kubernetes cannot ask a worker twice, and starts one again that ended by itself.
    test_out_of_patience_a_worker_gives_its_job_back_and_ends = None  # type: ignore[assignment]
    test_a_worker_that_is_killed_is_told_of_with_its_signal = None  # type: ignore[assignment]
    test_an_app_that_cannot_be_imported_is_told_of = None  # type: ignore[assignment]

    async def test_of_three_workers_the_idle_go_and_the_busy_one_finishes_its_job(
        self, fleets: KubernetesFleets, yard: Namespace
    ) -> None:
        names = await self.start_joined(fleets, yard, 3)
        job = await yard.submit_running()
        busy = (await yard.client.get(job)).worker
        idle = [name for name in names if name != busy]
        await fleets.stop(yard.fleet, idle)
        for name in idle:
            assert (await self.wait_for_end(fleets, yard.fleet, name)).exit_status == 0
        [left] = await fleets.members(yard.fleet)
        assert (left.name, left.condition) == (busy, Condition.RUNNING)
        yard.let_go(job)
        done = await yard.client.wait(job, timeout=60)
        assert (done.worker, done.attempt) == (busy, 1)
