"""The environment of a local fleet's workers in the fleet contract: a server's URL and a folder."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from penstock.autoscaler.backends import FleetMember, LaunchSpec
from penstock.client import AsyncClient
from penstock.testing.fleet_contract import Yard

APP = "tests.contracts.fleet_app:app"


class Folder(Yard):
    """A job ends once a file with its id is there."""

    def __init__(self, client: AsyncClient, url: str, folder: Path) -> None:
        super().__init__()
        self.client = client
        self._folder = folder
        self.environment: Mapping[str, str] = {
            "PENSTOCK_WORKER_URL": url,
            "PENSTOCK_WORKER_EXECUTORS": "1",
            "PENSTOCK_WORKER_GRACE_SECONDS": "0.5",
            "FLEET_APP_FOLDER": str(folder),
        }

    def order(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app=APP, queues=(fleet,), environment=self.environment)

    def unusable(self, fleet: str) -> LaunchSpec:
        return LaunchSpec(fleet=fleet, app="tests.contracts.no_such_app:app", environment=self.environment)

    def let_go(self, job: str) -> None:
        (self._folder / job).touch()

    async def kill(self, member: FleetMember) -> None:
        os.kill(int(member.detail.removeprefix("pid ")), signal.SIGKILL)
