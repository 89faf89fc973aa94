"""The guide to containers is followed word for word, with the image of deploy/Dockerfile built on the way."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import Podman, Postgres, Seaweed, Valkey
from servers.docker import install_docker
from servers.podman import layered_driver
from tests.docs.guide import ROOT, Block, blocks_of
from tests.docs.session import Session
from tests.servers_fixtures import real_servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ACCOUNTS = """\
host all penstock 127.0.0.1/32 trust
host all shop 127.0.0.1/32 scram-sha-256
"""


class Machine:
    """What the guide takes for granted: the servers, an engine, `docker`, and a checkout beside the project."""

    def __init__(self, folder: Path) -> None:
        (folder / "accounts").write_text(ACCOUNTS)
        self._folder = folder
        self._postgres = Postgres(folder / "postgres", settings={"hba_file": str(folder / "accounts")})
        self._valkey = Valkey(folder / "valkey")
        self._seaweed = Seaweed(folder / "seaweed")
        self._podman = Podman(folder / "podman", driver=layered_driver(folder))
        self.servers = (self._postgres, self._valkey, self._seaweed, self._podman)
        self.project = folder / "shop"

    def prepare(self) -> None:
        """To be called once the servers run."""
        self._postgres.run("CREATE ROLE shop LOGIN PASSWORD 'shop-secret'")
        self._postgres.run("CREATE DATABASE shop OWNER shop")
        install_docker(self._podman, self._folder / "bin")
        (self._folder / "penstock").symlink_to(ROOT)
        self.project.mkdir()

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self._folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    @property
    def addresses(self) -> dict[str, str]:
        """Those of the guide, and what they are here."""
        return {
            "127.0.0.1:5432": f"127.0.0.1:{self._postgres.port}",
            "127.0.0.1:6379": f"127.0.0.1:{self._valkey.port}",
            "127.0.0.1:8333": f"127.0.0.1:{self._seaweed.port}",
            "unix:///run/podman/podman.sock": self._podman.url,
        }

    def tell(self) -> None:
        """What the services of the guide wrote, for a test that failed."""
        for log in sorted(self.project.glob("service-*.log")):
            sys.stdout.write(f"{log.name}: {log.read_text()}\n")

    def docker(self, *words: str) -> str:
        command = [str(self._folder / "bin" / "docker"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def machine() -> Iterator[Machine]:
    with real_servers() as folder:
        folder.chmod(0o755)
        machine = Machine(folder)
        try:
            for server in machine.servers:
                server.start()
            machine.prepare()
            yield machine
        finally:
            machine.tell()
            for server in reversed(machine.servers):
                server.stop()


def test_the_guide_to_containers_goes_from_zero_to_several_workers_and_back(machine: Machine) -> None:
    with Session(machine.project, machine.environ, machine.addresses) as session:
        for block in blocks_of("containers"):
            if _submits(block):
                assert machine.docker("ps", "--all", "--quiet") == ""
            if block.file or (block.is_command and not block.not_run):
                session.run(block)
        assert not session.unused
    assert machine.docker("ps", "--all", "--quiet") == ""


def _submits(block: Block) -> bool:
    return "submit_many" in block.text
