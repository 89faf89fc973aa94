"""Podman for tests, with systems on it that tests have to themselves, and containers that behave as they are told."""

import asyncio
import random
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.autoscaler.backends.containers import ContainerDefaults, ContainerFleets
from penstock.autoscaler.backends.containers.container import recipe
from penstock.autoscaler.backends.containers.engine import ContainerEngine, ContainerRow
from penstock.model.clock import Clock, SystemClock
from penstock.testing.fleet_contract import eventually
from servers import Podman
from servers.podman import IMAGE
from tests.servers_fixtures import real_servers
from tests.watch import until_there

CLOCK = SystemClock()
WITHIN = 60.0
FLEET = "mail"

# Ends with 0 when it was asked once and the file `go` is there, with 3 as soon as it was asked twice; and with 4 in
# the end, should the test run have been killed.
STAND_IN = """
import os, pathlib, signal, sys, time
asked, begun = [], time.monotonic()
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
folder = pathlib.Path(os.environ["FOLDER"])
print("I am", os.environ["PENSTOCK_MEMBER"], flush=True)
(folder / ("ready-" + os.environ["PENSTOCK_MEMBER"])).touch()
while len(asked) < 2 and not (asked and (folder / "go").exists()):
    time.sleep(0.02)
    if time.monotonic() > begun + 300:
        sys.exit(4)
sys.exit(0 if len(asked) == 1 else 3)
"""
DEAF = STAND_IN.replace("asked.append(1)", "None")
GREEDY = "taken = []\nwhile True: taken.append(bytearray(1 << 20))"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with real_servers() as folder, Podman(folder / "podman") as engine:
        yield engine


class Place:
    """A system of its own on the engine: backends for it, and the folder that its containers share with the test."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.system = f"test-{secrets.token_hex(4)}"
        self.engine = ContainerEngine(url)
        self._opened: list[ContainerFleets] = []

    def fleets(self, clock: Clock = CLOCK, *, init: bool = True) -> ContainerFleets:
        """A backend, as a new autoscaler has it."""
        around = self._around(init=init)
        backend = ContainerFleets(self.url, clock, random.Random(), system=self.system, around=around)
        self._opened.append(backend)
        return backend

    def _around(self, *, init: bool) -> ContainerDefaults:
        binds = (*Podman.binds(), f"{self.folder}:{self.folder}")
        return ContainerDefaults(image=IMAGE, binds=binds, network="host", init=init, labels={"team": "tests"})

    def order(self, script: str = STAND_IN, *, memory_mib: int | None = None) -> LaunchSpec:
        command = (sys.executable, "-c", script)
        environment = {"FOLDER": str(self.folder)}
        return LaunchSpec(fleet=FLEET, app="no:app", command=command, environment=environment, memory_mib=memory_mib)

    async def created(self, name: str) -> str:
        """Create a container as a process does that ends before it starts it; its id."""
        labels = {"penstock.system": self.system, "penstock.fleet": FLEET, "penstock.worker": name}
        return await self.engine.create(name, recipe(self.order(), name, IMAGE, labels, self._around(init=True)))

    async def ready(self, *names: str) -> None:
        """Return once these members heed signals."""
        async with asyncio.timeout(WITHIN):
            for name in names:
                await until_there(self.folder / f"ready-{name}")

    def go(self) -> None:
        (self.folder / "go").touch()

    async def containers(self) -> list[ContainerRow]:
        """What the engine has, ended or not."""
        return await self.engine.containers({"penstock.system": self.system})

    async def close(self) -> None:
        for seen in await self.containers():
            await self.engine.signal(seen.id, "SIGKILL")
        for backend in self._opened:
            await backend.close()
        await self.engine.close()


@pytest.fixture
async def place(podman: Podman, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(podman.url, tmp_path)
    yield place
    await place.close()


async def ends(fleets: ContainerFleets, *names: str, fleet: str = FLEET) -> dict[str, FleetMember]:
    """Look until these members were told as ended; what was told of them."""
    told: dict[str, FleetMember] = {}

    async def look() -> bool:
        for member in await fleets.members(fleet):
            if member.condition is Condition.ENDED:
                assert member.name not in told, "told twice"
                told[member.name] = member
        return set(names) <= told.keys()

    await eventually(f"{names} have ended", look)
    return told


async def conditions(fleets: ContainerFleets) -> dict[str, Condition]:
    return {member.name: member.condition for member in await fleets.members(FLEET)}


def statuses(told: dict[str, FleetMember]) -> list[int | None]:
    return [member.exit_status for member in told.values()]
