"""Workers forked from a template: they are like those started anew, and nothing of them is left behind."""

import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.autoscaler.backends.processes import ProcessFleets
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import InvalidSetting
from penstock.model.lifecycle import State
from penstock.testing.fleet_contract import WITHIN, eventually
from penstock.worker.prefork.launcher import Launcher
from tests.contracts.fleet_folder import APP, Folder
from tests.system.harness import ROOT, Server
from tests.watch import until_ended

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = "penstock.cli.prefork"


class Fleet:
    """A launcher of its own, and one fleet over it."""

    def __init__(self, yard: Folder, *, template: bool = True) -> None:
        self.yard = yard
        self.launcher = Launcher(prefork=template)
        self.fleets = ProcessFleets(self.launcher.launch, SystemClock(), random.Random(), patience=seconds(0))

    async def start(self, count: int = 1, **environment: str) -> list[psutil.Process]:
        """So many more workers, joined."""
        order = self.yard.order(self.yard.fleet)
        wanted = LaunchSpec(
            fleet=order.fleet, app=APP, queues=order.queues, environment={**order.environment, **environment}
        )
        names = await self.fleets.start(wanted, count)
        await self.yard.wait_for_joined(names)
        members = {one.name: one for one in await self.members()}
        return [psutil.Process(int(members[name].detail.removeprefix("pid "))) for name in names]

    async def members(self) -> list[FleetMember]:
        return await self.fleets.members(self.yard.fleet)

    async def ended(self) -> list[FleetMember]:
        """The members that have ended, each reported once."""
        return [one for one in await self.members() if one.condition is Condition.ENDED]

    async def run(self, type: str) -> Any:
        """What a job of this type returns."""
        job = await self.yard.client.submit(type, queue=self.yard.fleet)
        done = await self.yard.client.wait(job.id, timeout=90)
        assert done.state == State.SUCCEEDED, done.error
        return done.result

    def template(self) -> psutil.Process:
        """The process that is asked for workers."""
        [one] = [child for child in psutil.Process().children() if is_template(child)]
        return one

    async def close(self) -> None:
        await self.fleets.close()
        await self.launcher.close()


def is_template(process: psutil.Process) -> bool:
    """Whether it leads a process tree that was forked from nothing: workers carry the same command line."""
    try:
        return TEMPLATE in process.cmdline() and not process.children() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ignores_hangup(pid: int) -> bool:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) & 1 << (signal.SIGHUP - 1))


async def wait_until_gone(*processes: psutil.Process) -> None:
    async with asyncio.timeout(WITHIN):
        await until_ended([one.pid for one in processes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("template")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    server = Server(folder / "data", app=None)
    yield server.url
    server.end()


@pytest_asyncio.fixture(loop_scope="module")
async def yard(url: str, folder: Path) -> AsyncIterator[Folder]:
    async with AsyncClient(url) as client:
        yield Folder(client, url, folder)


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(yard: Folder) -> AsyncIterator[Fleet]:
    fleet = Fleet(yard)
    yield fleet
    await fleet.close()


async def test_workers_and_executors_come_from_one_import(fleet: Fleet) -> None:
    [worker] = await fleet.start()
    told = await fleet.run("who")
    assert told["imported_by"] == fleet.template().pid
    assert (told["parent"], told["session"]) == (worker.pid, told["pid"])
    assert os.getsid(worker.pid) == worker.pid
    assert worker.ppid() == os.getpid()
    assert told["member"].startswith(fleet.yard.fleet)


async def test_a_job_that_runs_alone_has_a_fork_of_its_own(fleet: Fleet) -> None:
    [worker] = await fleet.start()
    one, other = [await fleet.run("who_alone") for _ in range(2)]
    assert one["pid"] != other["pid"]
    assert {one["parent"], other["parent"]} == {worker.pid}
    assert {one["imported_by"], other["imported_by"]} == {fleet.template().pid}


async def test_forks_do_not_share_their_random_numbers(fleet: Fleet) -> None:
    await fleet.start()
    one = await fleet.run("who")
    await fleet.fleets.stop(fleet.yard.fleet, [one["member"]])
    await fleet.start()
    other = await fleet.run("who")
    assert one["pid"] != other["pid"]
    assert one["chance"] != other["chance"]


async def test_what_an_app_does_to_its_process_at_import_does_not_reach_the_worker(fleet: Fleet, folder: Path) -> None:
    """Its signal handlers, its environment; and what it registers for the exit is the template's to do, once."""
    [worker] = await fleet.start(FLEET_APP_MEDDLES="1")
    told = await fleet.run("who")
    assert told["at_import"] == "yes"
    assert (ignores_hangup(told["pid"]), ignores_hangup(worker.pid)) == (True, False)
    await fleet.fleets.stop(fleet.yard.fleet, [told["member"]])
    assert [one.exit_status for one in await eventually("its end is reported", fleet.ended)] == [0]
    assert not (folder / "exited").exists()
    await fleet.close()
    assert (folder / "exited").exists()


async def test_nothing_that_a_worker_connects_with_is_in_the_environment_of_its_forks(fleet: Fleet) -> None:
    await fleet.start(PENSTOCK_STORE_URL="postgresql://jobs:hunter2@db/jobs", OF_THE_USER="kept")
    seen = await fleet.run("surroundings")
    assert "OF_THE_USER=kept" in seen
    assert not [one for one in seen if "hunter2" in one]
    assert {one.partition("=")[0] for one in seen if one.startswith("PENSTOCK_")} == {"PENSTOCK_URL", "PENSTOCK_MEMBER"}


async def test_an_executor_that_crashes_is_forked_anew(fleet: Fleet) -> None:
    await fleet.start()
    before = await fleet.run("who")
    job = await fleet.yard.client.submit("crash", queue=fleet.yard.fleet)
    await fleet.yard.client.wait(job.id, timeout=90)
    after = await fleet.run("who")
    assert after["pid"] != before["pid"]
    assert after["imported_by"] == before["imported_by"]


async def test_a_worker_without_its_own_template_starts_executors_itself(fleet: Fleet) -> None:
    [worker] = await fleet.start()
    own = min(worker.children(), key=psutil.Process.create_time)
    own.kill()
    await wait_until_gone(own)
    job = await fleet.yard.client.submit("crash", queue=fleet.yard.fleet)
    await fleet.yard.client.wait(job.id, timeout=90)
    after = await fleet.run("who")
    assert after["imported_by"] == after["pid"]
    assert after["parent"] == worker.pid


async def test_a_template_that_is_killed_takes_no_worker_along_and_is_replaced(fleet: Fleet) -> None:
    [worker] = await fleet.start()
    job = await fleet.yard.submit_running()
    lost = fleet.template()
    lost.kill()
    await wait_until_gone(lost)
    [other] = await fleet.start()
    assert worker.is_running()
    assert other.ppid() == os.getpid()
    assert fleet.template().pid != lost.pid
    fleet.yard.let_go(job)
    assert (await fleet.yard.client.wait(job, timeout=WITHIN)).state == State.SUCCEEDED


async def test_an_app_that_starts_threads_at_import_is_not_forked(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        await fleet.start(2, FLEET_APP_THREADS="1")
    assert [record.getMessage() for record in caplog.records if "from-import" in record.getMessage()] == [
        f"workers for {APP} start without a template, more slowly: importing the app started threads, "
        "which a fork would not have: from-import"
    ]
    told = await fleet.run("who")
    assert told["imported_by"] == told["pid"]


async def test_an_app_is_imported_with_the_environment_of_its_fleet(fleet: Fleet) -> None:
    [plain] = await fleet.start()
    await fleet.fleets.stop(fleet.yard.fleet, [(await fleet.run("who"))["member"]])
    await wait_until_gone(plain)
    await fleet.start(SET_AT_IMPORT="given")
    assert (await fleet.run("who"))["at_import"] == "given"
    assert len([child for child in psutil.Process().children() if is_template(child)]) == 2


async def test_what_an_app_declares_is_known_before_there_is_a_worker(yard: Folder) -> None:
    for template in (True, False):
        fleet = Fleet(yard, template=template)
        loaded = await fleet.launcher.load(APP, yard.environment)
        assert {one.name for one in loaded.types} >= {"hold", "who"}
        assert any(map(is_template, psutil.Process().children())) is template
        with pytest.raises(InvalidSetting, match="no_such_app"):
            await fleet.launcher.load("tests.contracts.no_such_app:app", yard.environment)
        await fleet.close()


def owner_of(yard: Folder, folder: Path, url: str) -> tuple["subprocess.Popen[bytes]", str]:
    """A process that has a fleet of its own, and the name of the one worker in it."""
    command = [sys.executable, "-m", "tests.system.fleet_owner", url, str(folder), yard.fleet]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout:
        [name] = json.loads(owner.stdout.readline())
    return owner, name


async def test_nothing_outlives_the_owner_and_running_jobs_are_finished(yard: Folder, folder: Path, url: str) -> None:
    owner, name = owner_of(yard, folder, url)
    job = await yard.submit_running()
    below = psutil.Process(owner.pid).children(recursive=True)
    [template] = [one for one in psutil.Process(owner.pid).children() if is_template(one)]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    await wait_until_gone(template)
    yard.let_go(job)
    await wait_until_gone(*below)
    done = await yard.client.get(job)
    assert (done.state, done.attempt, done.worker) == (State.SUCCEEDED, 1, name)
    assert len(below) >= len(("template", "worker", "its own template", "executor"))
